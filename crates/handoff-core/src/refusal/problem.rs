//! What a refusal tells its caller: the stable code, the transfer it is about, and what to do.

use handoff_protocol::{ErrorCode, Problem, TransferId};

use super::Refusal;

impl Refusal {
    /// The transfer it is about, where it is about one.
    const fn transfer(&self) -> Option<TransferId> {
        match self {
            Self::NoTransfer { transfer }
            | Self::TransferExists { transfer }
            | Self::WrongStatus { transfer, .. }
            | Self::AlreadyAuthorized { transfer, .. }
            | Self::AuthorizationOver { transfer }
            | Self::StaleGeneration { transfer }
            | Self::StaleIncarnation { transfer }
            | Self::StaleSnapshot { transfer, .. }
            | Self::ChecksumMismatch { transfer, .. }
            | Self::NotFinal { transfer }
            | Self::NoReceipt { transfer }
            | Self::WrongNode { transfer, .. }
            | Self::TokenTransfer { transfer }
            | Self::TokenScope { transfer, .. }
            | Self::TokenExpired { transfer, .. }
            | Self::TokenUsed { transfer }
            | Self::NoEpoch { transfer, .. }
            | Self::EpochOpen { transfer, .. }
            | Self::TooEarly { transfer, .. } => Some(*transfer),
            Self::SessionBusy { transfer, .. } => *transfer,
            Self::NoSession { .. }
            | Self::StaleEpoch { .. }
            | Self::EpochMissing { .. }
            | Self::LeaseOver
            | Self::FormerHolderMayRun { .. }
            | Self::WrongSource { .. }
            | Self::BudgetTooSmall { .. }
            | Self::NotARaise { .. }
            | Self::NothingToCarve { .. }
            | Self::TierUnknown { .. }
            | Self::NoNode { .. }
            | Self::ReportConflict { .. }
            | Self::ReportFell { .. } => None,
        }
    }

    /// The stable code.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::NoTransfer { .. } | Self::NoSession { .. } | Self::NoEpoch { .. } => ErrorCode::NotFound,
            Self::WrongStatus { .. }
            | Self::NoReceipt { .. }
            | Self::EpochOpen { .. }
            | Self::TooEarly { .. } => ErrorCode::WrongStatus,
            Self::SessionBusy { .. } | Self::FormerHolderMayRun { .. } => ErrorCode::SessionBusy,
            Self::AlreadyAuthorized { .. } => ErrorCode::AlreadyAuthorized,
            Self::AuthorizationOver { .. } | Self::LeaseOver => ErrorCode::LeaseOver,
            Self::StaleEpoch { .. } | Self::EpochMissing { .. } | Self::StaleIncarnation { .. } => {
                ErrorCode::StaleEpoch
            }
            Self::StaleGeneration { .. } => ErrorCode::StaleGeneration,
            Self::StaleSnapshot { .. } => ErrorCode::StaleSnapshot,
            Self::ChecksumMismatch { .. } => ErrorCode::ChecksumMismatch,
            Self::NotFinal { .. } => ErrorCode::NotFinal,
            Self::WrongNode { .. } | Self::WrongSource { .. } => ErrorCode::Forbidden,
            Self::TokenTransfer { .. } => ErrorCode::TokenTransfer,
            Self::TokenScope { .. } => ErrorCode::TokenScope,
            Self::TokenExpired { .. } => ErrorCode::TokenExpired,
            Self::TokenUsed { .. } => ErrorCode::TokenUsed,
            Self::BudgetTooSmall { .. } => ErrorCode::BudgetTooSmall,
            Self::NotARaise { .. } | Self::NothingToCarve { .. } | Self::ReportFell { .. } => {
                ErrorCode::InvalidArgument
            }
            Self::TierUnknown { .. } => ErrorCode::TierUnknown,
            Self::NoNode { .. } => ErrorCode::NoNode,
            Self::TransferExists { .. } | Self::ReportConflict { .. } => ErrorCode::IdempotencyConflict,
        }
    }

    /// What to do about it.
    const fn hint(&self) -> &'static str {
        match self {
            Self::NoTransfer { .. } => "check the id; list with `handoff status`",
            Self::TransferExists { .. } => "stage under a new id",
            Self::NoSession { .. } => "check the id; list with `handoff session list`",
            Self::WrongStatus { .. } => "ask get_status what comes next",
            Self::SessionBusy { transfer: Some(_), .. } => {
                "ask get_status what it is doing; finish or terminate it, then repeat"
            }
            Self::SessionBusy { transfer: None, .. } => "read the session: its holder comes first",
            Self::AlreadyAuthorized { .. } => "wait for its outcome: get_status",
            Self::AuthorizationOver { .. } => "activate again with a new token",
            Self::StaleEpoch { .. } | Self::EpochMissing { .. } => {
                "read the session and repeat with its present epoch"
            }
            Self::StaleGeneration { .. } | Self::StaleIncarnation { .. } => {
                "stop: this destination has been replaced"
            }
            Self::StaleSnapshot { .. } => "fetch the present snapshot",
            Self::ChecksumMismatch { .. } => "stage again, or leave the checksum out",
            Self::NotFinal { .. } => "quiesce the source and call snapshot_state with final: true",
            Self::NoReceipt { .. } => {
                "wait for its node's receipt, or push again where it failed: get_status"
            }
            Self::LeaseOver => "stop, or re-claim",
            Self::FormerHolderMayRun { .. } => "wait until then, or have the holder quiesce",
            Self::WrongNode { .. } => "only the assigned node may do this",
            Self::WrongSource { .. } => "only the source that holds the session may do this",
            Self::TokenTransfer { .. }
            | Self::TokenScope { .. }
            | Self::TokenExpired { .. }
            | Self::TokenUsed { .. } => "ask an orchestrator for a new token",
            Self::BudgetTooSmall { .. } => "name a larger budget",
            Self::NotARaise { .. } => "name the new amount in all, not what is added",
            Self::NothingToCarve { .. } => "leave carve out and name new money",
            Self::TierUnknown { .. } => {
                "use a tier that the operator has defined: `handoff doctor` lists them"
            }
            Self::NoNode { .. } => "add a node, choose a smaller tier, or wait",
            Self::ReportConflict { .. } | Self::ReportFell { .. } => {
                "report again from the journal with a higher seq"
            }
            Self::NoEpoch { .. } => "check the epoch: get_status",
            Self::EpochOpen { .. } => "send the closing report first",
            Self::TooEarly { .. } => "wait until then",
        }
    }

    /// The body that every surface answers with.
    pub fn problem(&self) -> Problem {
        let mut problem = Problem::new(self.code(), self.to_string(), self.hint());
        problem.transfer_id = self.transfer();
        if let Self::WrongStatus { found, command, .. } = self {
            problem.status = Some(*found);
            problem.expected = command.legal_from().to_vec();
        }
        problem
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use handoff_protocol::{NanoUsd, Status, Timestamp};

    use super::*;
    use crate::grid::CommandKind;
    use crate::least::Least;
    use crate::machine::world::{BUDGET, NODE, ONE, SESSION, digest};
    use crate::state::Epoch;

    const GOLDEN: &str = include_str!("../../tests/golden/refusals.txt");

    macro_rules! samples {
        ($($name:ident $({ $($field:ident: $value:expr),* })?),* $(,)?) => {
            fn samples() -> Vec<(&'static str, Refusal)> {
                vec![$((stringify!($name), Refusal::$name $({ $($field: $value),* })?)),*]
            }

            /// A variant without a sample does not compile.
            fn name(refusal: &Refusal) -> &'static str {
                match refusal { $(Refusal::$name { .. } => stringify!($name)),* }
            }
        };
    }

    samples! {
        NoTransfer { transfer: ONE },
        TransferExists { transfer: ONE },
        NoSession { session: SESSION },
        WrongStatus { transfer: ONE, found: Status::Staged, command: CommandKind::Push },
        SessionBusy { session: SESSION, transfer: Some(ONE), why: "it has a pending transfer" },
        AlreadyAuthorized { transfer: ONE, deadline: Timestamp::from_unix_ms(0) },
        AuthorizationOver { transfer: ONE },
        StaleEpoch { present: Epoch(3), named: Epoch(2) },
        EpochMissing { session: SESSION, present: Epoch(3) },
        StaleGeneration { transfer: ONE },
        StaleIncarnation { transfer: ONE },
        StaleSnapshot { transfer: ONE, present: digest("a") },
        ChecksumMismatch { transfer: ONE, present: digest("a"), named: digest("b") },
        NotFinal { transfer: ONE },
        NoReceipt { transfer: ONE },
        LeaseOver,
        FormerHolderMayRun { until: Timestamp::from_unix_ms(0) },
        WrongNode { transfer: ONE, node: NODE },
        WrongSource { session: SESSION },
        TokenTransfer { transfer: ONE },
        TokenScope { transfer: ONE, why: "it is for another operation" },
        TokenExpired { transfer: ONE, expires_at: Timestamp::from_unix_ms(0) },
        TokenUsed { transfer: ONE },
        BudgetTooSmall { budget: NanoUsd::ZERO, least: BUDGET, of: Least::ToBegin },
        NotARaise { present: BUDGET },
        NothingToCarve { session: SESSION },
        TierUnknown { tier: "huge".into() },
        NoNode { tier: "sandbox-small".into(), node: None },
        ReportConflict { epoch: Epoch(2), seq: 4 },
        ReportFell { epoch: Epoch(2), seq: 4 },
        NoEpoch { transfer: ONE, epoch: Epoch(2) },
        EpochOpen { transfer: ONE, epoch: Epoch(2) },
        TooEarly { transfer: ONE, at: Timestamp::from_unix_ms(0) },
    }

    #[test]
    fn every_refusal_has_a_code_a_sentence_and_advice_as_the_golden_list_says() {
        let mut list = String::new();
        for (written, refusal) in samples() {
            let problem = refusal.problem();
            assert_eq!(written, name(&refusal));
            assert_eq!(problem.code, refusal.code());
            assert!(!problem.hint.is_empty() && !problem.message.is_empty(), "{written}");
            writeln!(list, "{written}: {}\n  {}\n  {}", problem.code.as_str(), problem.message, problem.hint)
                .expect("a string grows");
        }
        assert_eq!(list, GOLDEN, "the list is now:\n{list}");
    }

    #[test]
    fn no_refusal_shows_anything_of_a_token() {
        for (written, refusal) in samples() {
            let problem = serde_json::to_string(&refusal.problem()).expect("a problem prints");
            assert!(!problem.contains("tok_") && !problem.contains("eyJ"), "{written}: {problem}");
        }
    }

    /// H-2
    #[test]
    fn a_wrong_status_names_the_one_found_and_the_ones_expected() {
        let refusal =
            Refusal::WrongStatus { transfer: ONE, found: Status::Active, command: CommandKind::Expire };
        let problem = refusal.problem();
        assert_eq!((problem.transfer_id, problem.status), (Some(ONE), Some(Status::Active)));
        assert_eq!(problem.expected, [Status::Staged, Status::Provisioned, Status::Pushed]);
    }
}
