//! A mutating request as it arrived: who, under which id, against which version. Its body is recognised by a
//! digest that leaves out the token and how long the caller waits: neither is part of what is asked.

use handoff_core::ledger::Request;
use handoff_protocol::Digest;
use handoff_protocol::id::RequestId;
use serde::Serialize;

use crate::access::Principal;

/// A call: who makes it, and on which condition.
#[derive(Debug, Clone)]
pub struct Call {
    /// Who.
    pub principal: Principal,
    /// If-Match: the transfer's version must be this one.
    pub expected_version: Option<u64>,
}

impl Call {
    /// A call without a condition.
    pub fn by(principal: Principal) -> Self {
        Self { principal, expected_version: None }
    }
}

/// The request record of a body about `subject`. Made here where the caller chose no id.
pub(crate) fn request(id: Option<&RequestId>, subject: &str, body: &impl Serialize) -> Request {
    let mut bytes = subject.as_bytes().to_vec();
    bytes.push(b'\n');
    serde_json::to_writer(&mut bytes, body).expect("what was read from JSON prints as JSON");
    let id = id.cloned().unwrap_or_else(new_request_id);
    Request { id, body: Digest::of(&bytes) }
}

fn new_request_id() -> RequestId {
    uuid::Uuid::now_v7().to_string().parse().expect("digits, a-f and hyphens are a request id")
}

#[cfg(test)]
mod tests {
    use handoff_protocol::request::Raise;

    use super::*;

    #[test]
    fn the_same_words_about_another_transfer_are_another_request() {
        let body = Raise { request_id: None, budget_usd: "1".parse().expect("an amount") };
        let id = "r".parse().expect("an id");
        let of = |subject| request(Some(&id), subject, &body);
        assert_eq!(of("xfr_1"), of("xfr_1"));
        assert_ne!(of("xfr_1").body, of("xfr_2").body);
        assert_ne!(request(None, "xfr_1", &body).id, request(None, "xfr_1", &body).id);
    }
}
