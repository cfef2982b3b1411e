//! Audit rows that no command writes: denied access, refused tokens, minted tokens, decided approvals.
//!
//! Rows that somebody can cause at will are rate-limited, so that nobody fills the store by being refused; what
//! was left out is counted in the next row that is written.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use handoff_core::ledger::{AuditEntry, Ledger};
use handoff_core::{Actor, Role};
use handoff_protocol::document::Facts;
use handoff_protocol::{ErrorCode, TransferId};

use crate::access::Principal;
use crate::error::ServiceError;

/// Rows about refusals that may be written at once.
const BURST: u32 = 50;
/// Rows about refusals per second, in the long run.
const PER_SECOND: u32 = 5;

/// Writes the rows.
pub(crate) struct Recorder {
    ledger: Arc<dyn Ledger>,
    allowance: Mutex<Allowance>,
}

impl Recorder {
    pub(crate) fn new(ledger: Arc<dyn Ledger>) -> Self {
        Self { ledger, allowance: Mutex::new(Allowance::new(Instant::now())) }
    }

    /// A row that must be written before what it is about counts.
    pub(crate) async fn record(
        &self,
        principal: &Principal,
        actor: Actor,
        transfer: Option<TransferId>,
        kind: &'static str,
        detail: Facts,
    ) -> Result<(), ServiceError> {
        let entry = AuditEntry { project: principal.project, transfer, kind, actor, detail };
        Ok(self.ledger.record(entry).await?)
    }

    pub(crate) async fn denied(&self, principal: &Principal, what: &str) {
        let detail = [("what", what.to_owned())];
        self.refused(principal, None, "access_denied", detail.into()).await;
    }

    /// A text that is no token of ours. Tokens that are and do not allow it are on the ledger's own record.
    pub(crate) async fn token_invalid(&self, principal: &Principal, transfer: TransferId) {
        // A transfer that does not exist has no chain to stand in.
        let known = self.ledger.transfer(principal.project, transfer).await.ok().flatten().is_some();
        let detail = [("code", ErrorCode::TokenInvalid.to_string()), ("transfer_id", transfer.to_string())];
        self.refused(principal, known.then_some(transfer), "token_refused", detail.into()).await;
    }

    async fn refused(
        &self,
        principal: &Principal,
        transfer: Option<TransferId>,
        kind: &'static str,
        detail: BTreeMap<&str, String>,
    ) {
        let Some(left_out) = self.allow() else { return };
        let mut detail: Facts = detail.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        if left_out > 0 {
            detail.insert("rows_left_out_before".to_owned(), left_out.to_string());
        }
        let roles = [Role::Node, Role::Caller, Role::Source, Role::Orchestrator, Role::Viewer, Role::Admin];
        let actor = principal
            .acting_as(&roles)
            .unwrap_or(Actor { principal: principal.name.clone(), role: Role::Viewer });
        if let Err(error) = self.record(principal, actor, transfer, kind, detail).await {
            tracing::warn!(%error, kind, "a refusal could not be recorded");
        }
    }

    fn allow(&self) -> Option<u64> {
        self.allowance.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now())
    }
}

/// A bucket that fills with time.
struct Allowance {
    left: u32,
    filled_at: Instant,
    left_out: u64,
}

impl Allowance {
    fn new(now: Instant) -> Self {
        Self { left: BURST, filled_at: now, left_out: 0 }
    }

    /// Takes one, and says how many were not to be had since the last one; none if there is none.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let seconds = u32::try_from(now.duration_since(self.filled_at).as_secs()).unwrap_or(u32::MAX);
        if seconds > 0 {
            self.left = self.left.saturating_add(seconds.saturating_mul(PER_SECOND)).min(BURST);
            self.filled_at = now;
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Some(std::mem::take(&mut self.left_out))
            }
            None => {
                self.left_out += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_flood_of_refusals_is_counted_and_not_written() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        let written = (0..1000).filter(|_| allowance.take(start).is_some()).count();
        assert_eq!(written, 50);
        assert_eq!(allowance.take(start + Duration::from_secs(2)), Some(950));
        let later = (0..100).filter(|_| allowance.take(start + Duration::from_secs(2)).is_some()).count();
        assert_eq!(later, 9);
    }
}
