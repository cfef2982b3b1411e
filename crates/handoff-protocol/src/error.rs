//! The closed list of error codes, each with its HTTP status, whether the same call may succeed later, and
//! the exit of the command line; and the body that carries one (RFC 9457 with `code`).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Status, TransferId};

/// How the command line ends: 0 ok, 1 a promise was broken, 2 usage, 3 refused, 4 retryable, 5 access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It was done.
    Ok = 0,
    /// A promise of the protocol did not hold. Always a bug worth reporting.
    PromiseBroken = 1,
    /// The call's words are off.
    Usage = 2,
    /// Understood and refused.
    Refused = 3,
    /// Not now; the same call may succeed later.
    Retryable = 4,
    /// Not allowed, or not known who is asking.
    Access = 5,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $http:literal, $exit:ident, $sentence:literal;)*) => {
        /// Why something was refused or failed. The list is closed; a surface maps it in one place.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum ErrorCode {
            $($(#[$doc])* #[doc = $sentence] $name,)*
        }

        impl ErrorCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The stable word.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code),* }
            }

            /// The HTTP status it is answered with.
            pub const fn http_status(self) -> u16 {
                match self { $(Self::$name => $http),* }
            }

            /// How the command line exits on it.
            pub const fn exit(self) -> Exit {
                match self { $(Self::$name => Exit::$exit),* }
            }

            /// What it means, in one sentence.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence),* }
            }
        }
    };
}

codes! {
    NotFound = "not_found", 404, Refused, "There is no such thing, or it is not yours to see.";
    WrongStatus = "wrong_status", 409, Refused, "The transfer's status does not allow this.";
    SessionBusy = "session_busy", 409, Refused, "Another transfer or the present holder stands in the way.";
    AlreadyAuthorized = "already_authorized", 409, Retryable, "An authorisation is open; its outcome comes first.";
    AuthorizationRequired = "authorization_required", 401, Access, "A person or a policy must approve this first.";
    TokenMissing = "token_missing", 401, Access, "This operation needs a transfer token.";
    TokenInvalid = "token_invalid", 401, Access, "The transfer token is malformed, forged or of another algorithm.";
    TokenExpired = "token_expired", 401, Access, "The transfer token is past its expiry or not yet valid.";
    TokenScope = "token_scope", 403, Access, "The transfer token is for another operation, or allows less.";
    TokenTransfer = "token_transfer", 403, Access, "The transfer token is for another transfer.";
    TokenUsed = "token_used", 409, Access, "The transfer token has been spent.";
    StaleEpoch = "stale_epoch", 409, Refused, "The session has moved on to another epoch.";
    StaleGeneration = "stale_generation", 409, Refused, "The transfer has been assigned anew.";
    StaleSnapshot = "stale_snapshot", 409, Refused, "Another snapshot has taken the place of this one.";
    NotFinal = "not_final", 409, Refused, "The snapshot is a draft; this step needs the final one.";
    LeaseOver = "lease_over", 409, Refused, "The lease or the authorisation has run out.";
    IdempotencyConflict = "idempotency_conflict", 409, Refused, "This request id was used with another body.";
    PreconditionFailed = "precondition_failed", 412, Refused, "The version named in the request is not the present one.";
    BudgetExceeded = "budget_exceeded", 402, Refused, "The rest of the budget does not cover this call.";
    BudgetTooSmall = "budget_too_small", 422, Refused, "The budget does not cover the wind-down and one tick.";
    PriceUnknown = "price_unknown", 422, Refused, "There is no price for this model, so it cannot be metered.";
    TierUnknown = "tier_unknown", 422, Refused, "The operator has defined no such tier.";
    NoNode = "no_node", 503, Retryable, "No node has room for this tier.";
    NotResumed = "not_resumed", 409, Refused, "The destination did not resume in time; the source stays frozen.";
    NotVerified = "not_verified", 409, Retryable, "The destination has not verified the snapshot yet; the push goes on.";
    ChecksumMismatch = "checksum_mismatch", 422, Refused, "The bytes are not the ones that were named.";
    SnapshotInvalid = "snapshot_invalid", 422, Refused, "The snapshot does not follow the format.";
    SignatureRefused = "signature_refused", 403, Refused, "The signature is missing, wrong, or by an unknown key.";
    PayloadTooLarge = "payload_too_large", 413, Refused, "The request is larger than this entry point takes.";
    SecretFound = "secret_found", 422, Refused, "The input holds something that looks like a credential.";
    CredentialUnresolved = "credential_unresolved", 424, Refused, "A credential reference does not resolve at the destination.";
    InvalidAmount = "invalid_amount", 422, Usage, "An amount is a decimal string with at most nine decimals.";
    InvalidArgument = "invalid_argument", 422, Usage, "A field is unknown, missing, or has an impossible value.";
    Unauthenticated = "unauthenticated", 401, Access, "It is not known who is asking.";
    Forbidden = "forbidden", 403, Access, "Whoever is asking may not do this.";
    RateLimited = "rate_limited", 429, Retryable, "Too many requests; wait.";
    StoreUnavailable = "store_unavailable", 503, Retryable, "The store does not answer; nothing was changed, or ask again to learn what was.";
    StoreLocked = "store_locked", 409, Refused, "Another process has the store open.";
    StorageFull = "storage_full", 507, Retryable, "There is no room left to store this safely.";
    IsolationUnavailable = "isolation_unavailable", 503, Refused, "This host cannot enforce what the tier promises.";
    QuotaExceeded = "quota_exceeded", 403, Refused, "The project's quota does not allow this.";
    MoveBlocked = "move_blocked", 409, Refused, "Something that must survive the move would not.";
    ReadOnly = "read_only", 503, Retryable, "The control plane answers questions only, until its nodes have reported.";
    VersionUnsupported = "version_unsupported", 422, Refused, "This version of the format is not supported.";
    Misconfigured = "misconfigured", 500, Usage, "The configuration does not allow a start.";
    Internal = "internal", 500, Retryable, "Something failed inside. The log has the cause.";
}

impl ErrorCode {
    /// Whether the same call, unchanged, may succeed later.
    pub const fn retryable(self) -> bool {
        matches!(self.exit(), Exit::Retryable)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The body of every refusal and failure: what happened, to what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Problem {
    /// The stable code.
    pub code: ErrorCode,
    /// What happened, to what, in one sentence.
    pub message: String,
    /// The transfer it happened to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_id: Option<TransferId>,
    /// The status that was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The statuses that would have been right.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<Status>,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// What to do about it.
    pub hint: String,
}

impl Problem {
    /// A problem with a message and a hint.
    pub fn new(code: ErrorCode, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            transfer_id: None,
            status: None,
            expected: Vec::new(),
            retryable: code.retryable(),
            hint: hint.into(),
        }
    }

    /// The same problem, said of this transfer.
    #[must_use]
    pub fn of_transfer(mut self, transfer: TransferId) -> Self {
        self.transfer_id = Some(transfer);
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_has_one_word_that_reads_back() {
        let words: BTreeSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(words.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            let json = format!("\"{}\"", code.as_str());
            assert_eq!(serde_json::from_str::<ErrorCode>(&json).expect("a code"), *code);
            assert!((400..600).contains(&code.http_status()), "{code}");
            assert!(code.sentence().ends_with('.'), "{code}");
        }
    }

    #[test]
    fn a_problem_reads_back() {
        let problem = Problem::new(ErrorCode::WrongStatus, "xfr is staged", "provision it first");
        let text = serde_json::to_string(&problem).expect("plain data");
        assert_eq!(serde_json::from_str::<Problem>(&text).expect("same shape"), problem);
    }
}
