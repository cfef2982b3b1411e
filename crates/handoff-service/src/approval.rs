//! What waits for a person: provisioning or activating without a token.
//!
//! An approval is bound to who asked, the transfer, the operation and the figures; saying yes mints a token
//! that never leaves this process, and the same call made again spends it by the rules for every token. Open
//! approvals are kept in memory: after a restart the call that comes again asks again.

use std::collections::BTreeMap;

use handoff_core::Role;
use handoff_core::token::TokenClaims;
use handoff_protocol::document::Facts;
use handoff_protocol::request::{ApprovalView, Operation};
use handoff_protocol::{ApprovalId, NanoUsd, ProjectId, Timestamp, TokenId, TransferId};

use crate::access::Principal;
use crate::error::ServiceError;
use crate::service::Service;

/// Approvals that may wait at once.
const OPEN_AT_ONCE: usize = 1000;
/// Approvals of one transfer that may wait at once.
const OPEN_PER_TRANSFER: usize = 8;

/// What was asked for, as it is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) project: ProjectId,
    pub(crate) asked_by: String,
    pub(crate) transfer: TransferId,
    pub(crate) operation: Operation,
    /// The figures: tier and budget, or the digest.
    pub(crate) figures: Facts,
    /// What the transfer may spend: what an amount rule looks at.
    pub(crate) budget: NanoUsd,
}

#[derive(Debug, Clone)]
struct Approval {
    id: ApprovalId,
    subject: Subject,
    answer: Answer,
    expires_at: Timestamp,
}

#[derive(Debug, Clone)]
enum Answer {
    Open,
    Granted(TokenClaims),
    Declined,
}

/// What a call that asks is told.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Spend this.
    Granted(TokenClaims),
    /// Somebody said no.
    Declined(ApprovalId),
    /// Nobody has said anything yet.
    Waiting(ApprovalId, Timestamp),
    /// There is no such approval.
    Unasked,
}

/// All approvals that can still be decided or used.
#[derive(Debug, Default)]
pub(crate) struct ApprovalBook {
    approvals: BTreeMap<ApprovalId, Approval>,
}

impl ApprovalBook {
    fn verdict(&mut self, subject: &Subject, now: Timestamp) -> Verdict {
        self.forget_old(now);
        match self.approvals.values().find(|approval| approval.subject == *subject) {
            None => Verdict::Unasked,
            Some(Approval { answer: Answer::Granted(claims), .. }) => Verdict::Granted(claims.clone()),
            Some(Approval { answer: Answer::Declined, id, .. }) => Verdict::Declined(*id),
            Some(Approval { answer: Answer::Open, id, expires_at, .. }) => Verdict::Waiting(*id, *expires_at),
        }
    }

    /// Opens it, unless the same was asked meanwhile: two approvals of one subject would be two tokens.
    fn open(
        &mut self,
        id: ApprovalId,
        subject: Subject,
        expires_at: Timestamp,
    ) -> Result<Option<(ApprovalId, Timestamp)>, ServiceError> {
        if let Some(known) = self.approvals.values().find(|approval| approval.subject == subject) {
            return Ok(Some((known.id, known.expires_at)));
        }
        let of_transfer = |approval: &&Approval| approval.subject.transfer == subject.transfer;
        let crowded = self.approvals.values().filter(of_transfer).count() >= OPEN_PER_TRANSFER;
        if crowded || self.approvals.len() >= OPEN_AT_ONCE {
            return Err(ServiceError::TooMany { what: "approvals are open" });
        }
        self.approvals.insert(id, Approval { id, subject, answer: Answer::Open, expires_at });
        Ok(None)
    }

    fn undecided(
        &mut self,
        project: ProjectId,
        id: ApprovalId,
        now: Timestamp,
    ) -> Result<&mut Approval, ServiceError> {
        self.forget_old(now);
        let found = self.approvals.get_mut(&id).filter(|approval| approval.subject.project == project);
        found.ok_or_else(|| ServiceError::NotFound { what: format!("open approval {id}") })
    }

    /// The token was spent, or cannot be any more.
    fn close(&mut self, token: TokenId) {
        self.approvals.retain(|_, approval| match &approval.answer {
            Answer::Granted(claims) => claims.id != token,
            Answer::Open | Answer::Declined => true,
        });
    }

    fn forget_old(&mut self, now: Timestamp) {
        self.approvals.retain(|_, approval| now < approval.expires_at);
    }
}

impl Approval {
    fn view(&self) -> ApprovalView {
        ApprovalView {
            approval_id: self.id,
            transfer_id: self.subject.transfer,
            operation: self.subject.operation,
            asked_by: self.subject.asked_by.clone(),
            subject: self.subject.figures.clone(),
            approved: match self.answer {
                Answer::Open => None,
                Answer::Granted(_) => Some(true),
                Answer::Declined => Some(false),
            },
            expires_at: self.expires_at,
        }
    }
}

impl Service {
    fn book(&self) -> std::sync::MutexGuard<'_, ApprovalBook> {
        self.inner.approvals.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Approvals that wait, or were decided and not used yet; oldest first.
    ///
    /// # Errors
    /// Where whoever asks may not look, or the ledger does not answer.
    pub async fn approvals(&self, principal: &Principal) -> Result<Vec<ApprovalView>, ServiceError> {
        let roles = [Role::Orchestrator, Role::Admin, Role::Viewer, Role::Caller];
        self.permit_roles(principal, &roles, "see approvals").await?;
        let now = self.inner.ledger.now().await?;
        let mut book = self.book();
        book.forget_old(now);
        let own = book.approvals.values().filter(|approval| approval.subject.project == principal.project);
        Ok(own.map(Approval::view).collect())
    }

    /// Says yes or no. A yes can be turned into a no while it was not used.
    ///
    /// # Errors
    /// Where whoever decides may not, or there is no such approval any more.
    pub async fn decide(
        &self,
        principal: &Principal,
        approval: ApprovalId,
        approve: bool,
    ) -> Result<ApprovalView, ServiceError> {
        let actor =
            self.permit_roles(principal, &[Role::Orchestrator, Role::Admin], "decide approvals").await?;
        // One decision after the other, and none while a grant is being spent: each is made on what the one before
        // it left, the rows stand in the order in which decisions count, and a confirmed no is not overtaken.
        let _deciding = self.inner.deciding.write().await;
        let now = self.inner.ledger.now().await?;
        let mut decided = self.book().undecided(principal.project, approval, now)?.clone();
        let transfer = decided.subject.transfer;
        let word = if approve { "approved" } else { "declined" };
        let detail = [("approval_id", approval.to_string()), ("decision", word.to_owned())];
        let detail = detail.map(|(key, value)| (key.to_owned(), value)).into();
        self.inner.recorder.record(principal, actor, Some(transfer), "approval_decided", detail).await?;
        match (&decided.answer, approve) {
            // Said again: the token that was minted stays the one.
            (Answer::Granted(_), true) | (Answer::Declined, false) => {}
            (Answer::Open | Answer::Declined, true) => {
                let claims = self.claims_for(&decided.subject, now);
                self.record_minted(principal, &claims, Some(approval)).await?;
                (decided.expires_at, decided.answer) = (claims.expires_at, Answer::Granted(claims));
            }
            (Answer::Open | Answer::Granted(_), false) => decided.answer = Answer::Declined,
        }
        // Looked up again: it may have run out while the rows were written.
        let mut book = self.book();
        let kept = book.undecided(principal.project, approval, now)?;
        *kept = decided;
        Ok(kept.view())
    }

    /// Whether what is asked was approved; opens an approval where nobody was asked yet. The caller holds
    /// `deciding` until it has spent what it is given.
    pub(crate) async fn approved(
        &self,
        principal: &Principal,
        subject: &Subject,
    ) -> Result<TokenClaims, ServiceError> {
        let now = self.inner.ledger.now().await?;
        let (transfer, operation) = (subject.transfer, subject.operation);
        let verdict = self.book().verdict(subject, now);
        let (approval, expires_at) = match verdict {
            Verdict::Granted(claims) => return Ok(claims),
            Verdict::Declined(approval) => {
                return Err(ServiceError::ApprovalDeclined { transfer, operation, approval });
            }
            Verdict::Waiting(approval, expires_at) => (approval, expires_at),
            Verdict::Unasked => {
                // Nobody gets here in the role `source`: the grid permits it neither operation.
                if self.config().approvals.covers(&principal.name, subject.budget) {
                    let claims = self.claims_for(subject, now);
                    self.record_minted(principal, &claims, None).await?;
                    return Ok(claims);
                }
                self.open_approval(principal, subject, now).await?
            }
        };
        Err(ServiceError::AuthorizationRequired { transfer, operation, approval, expires_at })
    }

    async fn open_approval(
        &self,
        principal: &Principal,
        subject: &Subject,
        now: Timestamp,
    ) -> Result<(ApprovalId, Timestamp), ServiceError> {
        let (id, expires_at) =
            (ApprovalId::from(uuid::Uuid::now_v7()), now.plus_ms(self.config().approval_ttl_ms));
        if let Some(known) = self.book().open(id, subject.clone(), expires_at)? {
            return Ok(known);
        }
        let mut detail = subject.figures.clone();
        detail.insert("approval_id".to_owned(), id.to_string());
        detail.insert("operation".to_owned(), subject.operation.as_str().to_owned());
        let actor =
            self.permit_roles(principal, &[Role::Caller, Role::Orchestrator, Role::Admin], "ask").await?;
        self.inner
            .recorder
            .record(principal, actor, Some(subject.transfer), "approval_opened", detail)
            .await?;
        Ok((id, expires_at))
    }

    /// The approval behind this token is used up.
    pub(crate) fn approval_spent(&self, token: TokenId) {
        self.book().close(token);
    }

    /// A token for exactly what was asked.
    fn claims_for(&self, subject: &Subject, now: Timestamp) -> TokenClaims {
        let provision = subject.operation == Operation::ProvisionRuntime;
        TokenClaims {
            id: TokenId::from(uuid::Uuid::now_v7()),
            transfer: subject.transfer,
            operation: subject.operation,
            issued_at: now,
            expires_at: now.plus_ms(self.config().token_ttl_ms),
            max_budget: provision.then_some(subject.budget),
            tier: subject.figures.get("tier").map(|tier| tier.as_str().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(number: u128) -> Subject {
        Subject {
            project: ProjectId::from_u128(1),
            asked_by: "agent".to_owned(),
            transfer: TransferId::from_u128(number),
            operation: Operation::Activate,
            figures: Facts::from([("digest".to_owned(), "sha256:00".to_owned())]),
            budget: NanoUsd::ZERO,
        }
    }

    #[test]
    fn an_approval_is_for_exactly_what_was_asked_and_not_for_ever() {
        let (start, end) = (Timestamp::from_unix_ms(0), Timestamp::from_unix_ms(10));
        let mut book = ApprovalBook::default();
        book.open(ApprovalId::from_u128(1), subject(1), end).expect("room");
        assert!(matches!(book.verdict(&subject(1), start), Verdict::Waiting(_, _)));
        let mut other = subject(1);
        other.figures.insert("digest".to_owned(), "sha256:01".to_owned());
        for stranger in [other, Subject { asked_by: "another".to_owned(), ..subject(1) }, subject(2)] {
            assert!(matches!(book.verdict(&stranger, start), Verdict::Unasked), "{stranger:?}");
        }
        assert!(matches!(book.verdict(&subject(1), end), Verdict::Unasked), "it expired");
    }

    #[test]
    fn the_same_is_asked_once() {
        let end = Timestamp::from_unix_ms(10);
        let mut book = ApprovalBook::default();
        let first = ApprovalId::from_u128(1);
        assert_eq!(book.open(first, subject(1), end).ok(), Some(None));
        let again = book.open(ApprovalId::from_u128(2), subject(1), end.plus_ms(5));
        assert_eq!(again.ok(), Some(Some((first, end))));
    }

    #[test]
    fn nobody_fills_the_book() {
        let end = Timestamp::from_unix_ms(10);
        let mut book = ApprovalBook::default();
        let mut open = |number: u128, transfer: u128| {
            let figures = Facts::from([("digest".to_owned(), number.to_string())]);
            book.open(ApprovalId::from_u128(number), Subject { figures, ..subject(transfer) }, end).is_ok()
        };
        let opened = (0..20).filter(|number| open(*number, 1)).count();
        assert_eq!(opened, OPEN_PER_TRANSFER);
        let opened = (100..3000).filter(|number| open(*number, *number)).count();
        assert_eq!(opened, OPEN_AT_ONCE - OPEN_PER_TRANSFER);
    }
}
