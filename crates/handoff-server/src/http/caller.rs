//! Who asks. The listener says who is at the other end of a connection; headers can only narrow that.

use axum::extract::FromRequestParts;
use handoff_protocol::{ErrorCode, NodeId, header};
use handoff_service::{Call, Principal, Role, Service};
use http::request::Parts;
use http::{HeaderMap, header as names};

use super::problem::Failure;

/// Who is at the other end of a connection, as far as its listener can tell. A request without one is a
/// stranger's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// The user who owns the control plane, or root.
    Owner,
    /// Another user of this machine.
    Stranger {
        /// Which.
        uid: u32,
    },
}

/// Who makes a call, and on which condition.
pub(crate) struct Caller(pub(crate) Call);

impl FromRequestParts<Service> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Failure> {
        let project = service.config().project;
        let peer = match parts.extensions.get::<Peer>() {
            Some(Peer::Owner) => Principal::owner(project),
            Some(Peer::Stranger { uid }) => {
                let stranger = Principal::new(format!("uid:{uid}"), project, []);
                service.denied(&stranger, "use this control plane").await;
                return Err(unauthenticated());
            }
            None => return Err(unauthenticated()),
        };
        let principal = match wanted(&parts.headers)? {
            Wanted::AsItIs => Some(peer.clone()),
            Wanted::Role(role) => peer.clone().narrowed(role),
            Wanted::Node(node) => peer.clone().as_node(node),
        };
        let Some(principal) = principal else {
            return Err(service.denied(&peer, "act in that role").await.into());
        };
        Ok(Self(Call { principal, expected_version: if_match(&parts.headers)? }))
    }
}

fn unauthenticated() -> Failure {
    let message = "this control plane serves the user who started it";
    Failure::new(ErrorCode::Unauthenticated, message, "ask as that user, or as root")
}

enum Wanted {
    AsItIs,
    Role(Role),
    Node(NodeId),
}

fn wanted(headers: &HeaderMap) -> Result<Wanted, Failure> {
    let wrong = |message: &str| {
        let hint = "name one of source, caller, orchestrator, viewer, admin; or node, with the node's id";
        Failure::new(ErrorCode::InvalidArgument, message, hint)
    };
    let role = match text(headers, header::ROLE)? {
        Some(word) => Some(Role::parse(word).ok_or_else(|| wrong("x-handoff-role names no role"))?),
        None => None,
    };
    let node = match text(headers, header::NODE)? {
        Some(id) => Some(id.parse::<NodeId>().map_err(|_| wrong("x-handoff-node is no node's id"))?),
        None => None,
    };
    match (role, node) {
        (None, None) => Ok(Wanted::AsItIs),
        (Some(Role::Node) | None, Some(node)) => Ok(Wanted::Node(node)),
        (Some(Role::Node), None) => Err(wrong("the role node needs x-handoff-node")),
        (Some(_), Some(_)) => Err(wrong("x-handoff-node goes with the role node only")),
        (Some(role), None) => Ok(Wanted::Role(role)),
    }
}

fn if_match(headers: &HeaderMap) -> Result<Option<u64>, Failure> {
    let Some(tag) = text(headers, names::IF_MATCH.as_str())? else { return Ok(None) };
    if tag == "*" {
        return Ok(None);
    }
    let version =
        tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).and_then(|tag| tag.parse().ok());
    let wrong = || {
        let message = "If-Match names no version";
        Failure::new(
            ErrorCode::InvalidArgument,
            message,
            "send back the ETag of the transfer, quotes included",
        )
    };
    version.map(Some).ok_or_else(wrong)
}

/// A header that may stand once.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Failure> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next(), values.next());
    let text = first.map(|value| value.to_str());
    match (text, second) {
        (None, _) => Ok(None),
        (Some(Ok(text)), None) => Ok(Some(text)),
        (Some(_), _) => {
            let message = format!("the header {name} stands twice or is not plain text");
            Err(Failure::new(ErrorCode::InvalidArgument, message, "send it once"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().expect("plain text"));
        }
        headers
    }

    #[test]
    fn a_version_is_a_quoted_number() {
        let read = |value: &str| if_match(&headers(&[("if-match", value)])).ok();
        assert_eq!(read("\"7\""), Some(Some(7)));
        assert_eq!(read("*"), Some(None));
        for bad in ["7", "\"7", "W/\"7\"", "\"seven\"", "\"7\", \"8\""] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(if_match(&headers(&[])).ok(), Some(None));
        assert!(if_match(&headers(&[("if-match", "\"7\""), ("if-match", "\"8\"")])).is_err());
    }

    #[test]
    fn a_node_has_an_id_and_nobody_else_has() {
        let node = NodeId::from_u128(1).to_string();
        let ok = |pairs: &[(&'static str, &str)]| wanted(&headers(pairs)).is_ok();
        assert!(ok(&[]) && ok(&[(header::ROLE, "viewer")]));
        assert!(ok(&[(header::NODE, &node)]) && ok(&[(header::ROLE, "node"), (header::NODE, &node)]));
        assert!(!ok(&[(header::ROLE, "node")]));
        assert!(!ok(&[(header::ROLE, "caller"), (header::NODE, &node)]));
        assert!(!ok(&[(header::ROLE, "root")]));
        assert!(!ok(&[(header::NODE, "nod_1")]));
    }
}
