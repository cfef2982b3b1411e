//! What a fact's row says besides its type: figures and names, never content and never a token's text.

use handoff_protocol::document::Facts;

use super::Fact;
use crate::transfer::{EndReason, Outcome};

macro_rules! details {
    ($($variant:ident { $($field:ident),* } => [$($key:literal: $value:expr),*];)*) => {
        impl Fact {
            /// What the row says besides its type: figures and names, never content and never a token's text.
            pub fn detail(&self) -> Facts {
                match self {
                    $(Self::$variant { $($field,)* .. } => {
                        let words: &[(&str, String)] = &[$(($key, $value.to_string())),*];
                        let kept = words.iter().filter(|(_, word)| !word.is_empty());
                        kept.map(|(key, word)| ((*key).to_owned(), word.clone())).collect()
                    })*
                }
            }
        }
    };
}

details! {
    SessionOpened { session, principal } => ["session_id": session, "holder": principal];
    Staged { snapshot, mark } => ["snapshot": snapshot, "final": mark.is_some()];
    Refreshed { snapshot, mark } => ["snapshot": snapshot, "final": mark.is_some()];
    FinalRequested {} => [];
    TokenSpent { token, operation } => ["token_id": token, "operation": operation.as_str()];
    Provisioned { tier, allocated, reserve, node } =>
        ["tier": tier.name, "budget_usd": allocated, "reserve_usd": reserve, "node_id": node];
    BudgetCarved { allocated } => ["budget_usd": allocated];
    BudgetRestored { allocated } => ["budget_usd": allocated];
    PushRequested { digest } => ["digest": digest];
    PushFailed { missing } => ["missing_references": missing.join(" ")];
    Pushed { generation, digest } => ["generation": generation, "digest": digest];
    Authorized { authorization, deadline } => ["authorization": authorization, "deadline": deadline];
    AuthorizationEnded { authorization, outcome } =>
        ["authorization": authorization, "outcome": outcome_word(outcome), "reason": reason_of(outcome)];
    Claimed { epoch, incarnation, node, limit } =>
        ["epoch": epoch, "incarnation": incarnation, "node_id": node, "limit_usd": limit];
    Reclaimed { epoch, incarnation, node, limit } =>
        ["epoch": epoch, "incarnation": incarnation, "node_id": node, "limit_usd": limit];
    Renewed {} => [];
    Checkpointed { epoch, digest } => ["epoch": epoch, "digest": digest];
    Rested {} => [];
    Woken {} => [];
    UsageReported { epoch, seq, totals, closing, body } =>
        ["epoch": epoch, "seq": seq, "spent_usd": totals.spent(), "closing": closing, "report": body];
    SpendRecorded { cost, detail } => ["cost_usd": cost, "detail": detail];
    WaitStarted {} => [];
    BecameInsolvent { grace_until } => ["grace_until": grace_until];
    BudgetRaised { allocated } => ["budget_usd": allocated, "cause": "budget_raised"];
    Reassigned { node, generation } => ["node_id": node, "generation": generation];
    Terminated { reason } => ["reason": reason.as_str()];
    Expired {} => ["reason": EndReason::TimeToLive.as_str()];
    Returned { epoch } => ["epoch": epoch];
    SourceAbandoned { epoch } => ["epoch": epoch];
    Observed {} => [];
    HolderGone {} => [];
    WrittenOff { epoch } => ["epoch": epoch];
    LedgerClosed {} => [];
}

fn outcome_word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Open => "open",
        Outcome::Claimed => "claimed",
        Outcome::Declined { .. } => "declined",
        Outcome::Withdrawn => "withdrawn",
    }
}

fn reason_of(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Declined { reason } => reason,
        Outcome::Open | Outcome::Claimed | Outcome::Withdrawn => "",
    }
}
