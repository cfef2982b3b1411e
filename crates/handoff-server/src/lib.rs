//! The gatehouse: /v1 on the state socket, access, and the one error mapping.
