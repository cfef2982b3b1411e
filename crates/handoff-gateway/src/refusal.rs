//! What the door answers when it does not pass a call on: the error body that OpenAI's clients know, with a
//! stable code, and for money what is required and what is available.

use bytes::Bytes;
use handoff_protocol::{ErrorCode, NanoUsd};
use http::{Response, StatusCode, header};
use serde::Serialize;

use crate::account::NoHold;
use crate::journal::JournalError;
use crate::wire::InvalidDemand;

/// Why a call is not passed on, or has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DoorRefusal {
    /// No token, or another one.
    #[error("the agent's token is missing or wrong")]
    Unauthenticated,
    /// No such upstream.
    #[error("there is no upstream at this path; call /<upstream>/v1/chat/completions")]
    NoUpstream,
    /// A path that is not metered.
    #[error("only POST {0} is metered at this upstream, so nothing else is passed on")]
    NotMetered(&'static str),
    /// Too many bytes.
    #[error("the request has more than {0} bytes")]
    TooLarge(usize),
    /// The body did not arrive.
    #[error("the request's body broke off")]
    BrokenOff,
    /// The request cannot be metered.
    #[error(transparent)]
    Invalid(#[from] InvalidDemand),
    /// Bytes that cannot be read.
    #[error("a compressed request cannot be metered")]
    Encoded,
    /// No price.
    #[error("there is no price for model '{model}' at '{upstream}', so it cannot be metered")]
    PriceUnknown {
        /// At which upstream.
        upstream: String,
        /// For which model.
        model: String,
    },
    /// No bound.
    #[error("there is no bound for what images and files cost with model '{0}'")]
    NoBound(String),
    /// No hold.
    #[error(transparent)]
    NoHold(#[from] NoHold),
    /// The destination's key cabinet has no credential for it.
    #[error("the credential of upstream '{0}' is not resolved here")]
    NoCredential(String),
    /// Too many calls at a time.
    #[error("this session has {0} calls under way; wait for one to end")]
    TooManyCalls(usize),
    /// The upstream does not take the connection.
    #[error("the upstream cannot be reached; nothing was sent and nothing is charged")]
    Unreachable,
    /// The upstream did not answer in time.
    #[error("the upstream did not answer in time; the call's outcome is unknown and its maximum is charged")]
    TimedOut,
    /// The upstream broke off.
    #[error("the upstream broke off; the call's outcome is unknown and its maximum is charged")]
    Broken,
    /// The upstream answers with something that is not passed on.
    #[error("the upstream's answer cannot be passed on: {0}")]
    BadAnswer(&'static str),
}

#[derive(Serialize)]
struct Body<'r> {
    error: Said<'r>,
}

#[derive(Serialize)]
struct Said<'r> {
    message: String,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'r str>,
    code: &'r str,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    required_usd: Option<NanoUsd>,
    #[serde(skip_serializing_if = "Option::is_none")]
    available_usd: Option<NanoUsd>,
}

impl DoorRefusal {
    /// The stable word and the HTTP status. Words beyond [`ErrorCode`] are the door's own: they are said to an
    /// agent, never by the control plane.
    pub(crate) fn code(&self) -> (&'static str, u16) {
        let shared = |code: ErrorCode| (code.as_str(), code.http_status());
        match self {
            Self::Unauthenticated => shared(ErrorCode::Unauthenticated),
            Self::NoUpstream => shared(ErrorCode::NotFound),
            Self::NotMetered(_) => shared(ErrorCode::Forbidden),
            Self::TooLarge(_) => shared(ErrorCode::PayloadTooLarge),
            Self::BrokenOff | Self::Invalid(_) | Self::Encoded => shared(ErrorCode::InvalidArgument),
            Self::PriceUnknown { .. } | Self::NoBound(_) => shared(ErrorCode::PriceUnknown),
            Self::NoHold(NoHold::Exceeded { .. }) => shared(ErrorCode::BudgetExceeded),
            Self::NoHold(NoHold::Journal(JournalError::Full)) => shared(ErrorCode::StorageFull),
            Self::NoHold(NoHold::Journal(_)) => shared(ErrorCode::StoreUnavailable),
            Self::NoHold(NoHold::NotNow(_)) => ("wait", 503),
            Self::NoCredential(_) => shared(ErrorCode::CredentialUnresolved),
            Self::TooManyCalls(_) => shared(ErrorCode::RateLimited),
            Self::Unreachable => ("upstream_unreachable", 502),
            Self::TimedOut => ("upstream_timed_out", 504),
            Self::Broken => ("upstream_broke_off", 502),
            Self::BadAnswer(_) => ("upstream_answer_refused", 502),
        }
    }

    /// Whether the same call may succeed later.
    fn retryable(&self) -> bool {
        match self {
            Self::NoHold(NoHold::NotNow(_) | NoHold::Journal(_))
            | Self::TooManyCalls(_)
            | Self::Unreachable => true,
            Self::Unauthenticated
            | Self::NoUpstream
            | Self::NotMetered(_)
            | Self::TooLarge(_)
            | Self::BrokenOff
            | Self::Invalid(_)
            | Self::Encoded
            | Self::PriceUnknown { .. }
            | Self::NoBound(_)
            | Self::NoHold(NoHold::Exceeded { .. })
            | Self::NoCredential(_)
            | Self::TimedOut
            | Self::Broken
            | Self::BadAnswer(_) => false,
        }
    }

    /// What the call needs at the least, and what is left.
    fn money(&self) -> Option<(NanoUsd, NanoUsd)> {
        let Self::NoHold(NoHold::Exceeded { required, available }) = self else { return None };
        Some((*required, *available))
    }

    /// The field that is at fault.
    fn param(&self) -> Option<&'static str> {
        let Self::Invalid(InvalidDemand::Field { field, .. }) = self else { return None };
        Some(field)
    }

    /// The answer.
    pub(crate) fn response(&self) -> Response<Bytes> {
        let (code, status) = self.code();
        let (required_usd, available_usd) = self.money().unzip();
        let message = self.to_string();
        let (param, retryable) = (self.param(), self.retryable());
        let said =
            Said { message, kind: "handoff_gateway", param, code, retryable, required_usd, available_usd };
        let body = serde_json::to_vec(&Body { error: said }).expect("plain data");
        let status = StatusCode::from_u16(status).expect("a status of ours");
        let answer = Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
        let waits = matches!(self, Self::NoHold(NoHold::NotNow(_)));
        let answer = if waits { answer.header(header::RETRY_AFTER, "1") } else { answer };
        answer.body(Bytes::from(body)).expect("headers of ours")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::NotNow;

    /// H-77
    #[test]
    fn a_call_that_does_not_fit_says_what_is_required_and_available() {
        let exceeded = NoHold::Exceeded {
            required: "0.0125".parse().expect("an amount"),
            available: "0.01".parse().expect("an amount"),
        };
        let answer = DoorRefusal::NoHold(exceeded).response();
        assert_eq!(answer.status(), 402);
        let body: serde_json::Value = serde_json::from_slice(answer.body()).expect("JSON");
        let error = &body["error"];
        assert_eq!(error["code"], "budget_exceeded");
        assert_eq!(error["required_usd"], "0.0125");
        assert_eq!(error["available_usd"], "0.01");
        assert_eq!(error["retryable"], false);
        assert!(answer.headers().get(header::RETRY_AFTER).is_none());
    }

    #[test]
    fn waiting_is_said_so() {
        let answer = DoorRefusal::NoHold(NotNow::Frozen.into()).response();
        assert_eq!(answer.status(), 503);
        assert!(answer.headers().contains_key(header::RETRY_AFTER));
        let body: serde_json::Value = serde_json::from_slice(answer.body()).expect("JSON");
        assert_eq!(body["error"]["code"], "wait");
        assert_eq!(body["error"]["param"], serde_json::Value::Null);
    }
}
