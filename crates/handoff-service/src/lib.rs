//! Use-cases over the ports: tokens, waiting, approvals and the reaper.
