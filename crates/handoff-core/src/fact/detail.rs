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
    Provisioned { tier, budget, node } =>
        ["tier": tier.name, "budget_usd": budget.allocated, "reserve_usd": budget.reserve, "node_id": node];
    BudgetCarved { allocated } => ["budget_usd": allocated];
    BudgetRestored { allocated } => ["budget_usd": allocated];
    PushRequested { digest } => ["digest": digest];
    PushFailed { missing } => ["missing_references": missing.join(" ")];
    Pushed { generation, digest } => ["generation": generation, "digest": digest];
    Authorized { authorization, deadline } => ["authorization": authorization, "deadline": deadline];
    AuthorizationEnded { authorization, outcome } =>
        ["authorization": authorization, "outcome": outcome_word(outcome), "reason": reason_of(outcome)];
    Claimed { taken } => ["epoch": taken.epoch, "incarnation": taken.incarnation, "node_id": taken.node,
        "limit_usd": taken.limit];
    Reclaimed { taken } => ["epoch": taken.epoch, "incarnation": taken.incarnation, "node_id": taken.node,
        "limit_usd": taken.limit];
    Renewed {} => [];
    Checkpointed { epoch, digest } => ["epoch": epoch, "digest": digest];
    Rested {} => [];
    Woken {} => [];
    UsageReported { epoch, seq, totals, closing, body } =>
        ["epoch": epoch, "seq": seq, "spent_usd": totals.spent(), "model_usd": totals.model_usd, "closing": closing,
         "report": body];
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

#[cfg(test)]
mod tests {
    use crate::fact::Record;
    use crate::grid::CommandKind;
    use crate::machine::world::{ONE, TWO, World, incarnation};

    /// What the rows of a hop say, one line for each fact: `kind key=… key=…`.
    fn rows(world: &World) -> Vec<String> {
        let row = |fact: &crate::Fact| {
            let kind = match fact.record() {
                Record::Event(event) => event.as_str(),
                Record::Audit(kind) => kind,
                Record::Bookkeeping => return None,
            };
            let keys: Vec<String> = fact.detail().into_keys().collect();
            Some(format!("{kind}: {}", keys.join(" ")))
        };
        world.facts.iter().filter_map(row).collect()
    }

    /// H-15
    #[test]
    fn rows_carry_figures_and_names() {
        let mut world = World::hop_pushed();
        world.give(world.command(CommandKind::Activate, TWO));
        world.give(world.command(CommandKind::Decline, TWO));
        world.give(world.command(CommandKind::Activate, TWO));
        world.give(world.claim(TWO, incarnation(2)));
        world.give(world.report_of(ONE, crate::Epoch(2), |usage| usage.closing = true));
        let rows = rows(&world);
        for expected in [
            "session_opened: holder session_id",
            "snapshot_created: final snapshot",
            "token_spent: operation token_id",
            "runtime_provisioned: budget_usd node_id reserve_usd tier",
            "push_requested: digest",
            "state_pushed: digest generation",
            "authorized: authorization deadline",
            "authorization_ended: authorization outcome reason",
            "activated: epoch incarnation limit_usd node_id",
            "snapshot_refreshed: final snapshot",
            "terminated: reason",
            "usage_reported: closing epoch model_usd report seq spent_usd",
        ] {
            assert!(rows.iter().any(|row| row == expected), "{expected} is not in {rows:#?}");
        }
    }

    #[test]
    fn a_raise_out_of_insolvency_says_why_it_is_active() {
        let mut world = World::insolvent();
        let (facts, _) = world.make(world.command(CommandKind::RaiseBudget, ONE));
        assert_eq!(facts[0].detail().get("cause").map(String::as_str), Some("budget_raised"));
    }
}
