//! Facts about a transfer's snapshot, from staging to its receipt, and about its end.

use handoff_protocol::{AuthorizationId, Digest, Status, Timestamp, TokenId, TransferId};

use crate::state::{Accepted, Holder, Standing, State};
use crate::transfer::{Authorization, EndReason, Ended, FinalMark, Outcome, Push, Transfer};

/// A snapshot, its final mark, and whether the session's holder gave it.
type Given = (Digest, Option<FinalMark>, bool);

impl State {
    pub(super) fn staged(
        &mut self,
        transfer: TransferId,
        given: Given,
        at: Timestamp,
        expires_at: Timestamp,
    ) {
        let (snapshot, mark, _) = given;
        let session = self.touch();
        session.pending = Some(transfer);
        let staged = Transfer::staged(transfer, session.id, snapshot, mark, at, expires_at);
        self.transfers.insert(transfer, staged);
        self.accept(given);
    }

    pub(super) fn refreshed(&mut self, transfer: TransferId, given: Given) {
        let pending = self.change(transfer);
        (pending.snapshot, pending.mark) = (given.0, given.1);
        pending.push = None;
        pending.receipt = false;
        self.accept(given);
    }

    /// A holder's snapshot becomes the last accepted one: its final always, a source's draft as a draft. A live
    /// holder's draft is not: its checkpoints are.
    fn accept(&mut self, (digest, mark, by_holder): Given) {
        if !by_holder {
            return;
        }
        let session = self.touch();
        let standing = match (mark, &session.holder) {
            (Some(_), _) => Standing::Final,
            (None, Holder::Source { .. } | Holder::None) => Standing::Draft,
            (None, Holder::Incarnation { .. }) => return,
        };
        session.last_snapshot = Some(Accepted { digest, epoch: session.epoch, standing });
    }

    pub(super) fn token_spent(&mut self, transfer: TransferId, token: TokenId) {
        self.change(transfer).spent_tokens.insert(token);
    }

    pub(super) fn push_requested(&mut self, transfer: TransferId, digest: Digest) {
        self.change(transfer).push = Some(Push::Requested { digest });
    }

    pub(super) fn push_failed(&mut self, transfer: TransferId, missing: &[String]) {
        self.change(transfer).push = Some(Push::Failed { missing: missing.to_vec() });
    }

    pub(super) fn pushed(&mut self, transfer: TransferId) {
        let found = self.change(transfer);
        found.status = Status::Pushed;
        found.receipt = true;
    }

    pub(super) fn authorized(&mut self, transfer: TransferId, id: AuthorizationId, deadline: Timestamp) {
        let open = Authorization { id, deadline, outcome: Outcome::Open };
        self.change(transfer).authorization = Some(open);
    }

    pub(super) fn end_authorization(&mut self, transfer: TransferId, outcome: &Outcome) {
        if let Some(authorization) = &mut self.change(transfer).authorization {
            authorization.outcome = outcome.clone();
        }
    }

    pub(super) fn terminated(&mut self, transfer: TransferId, reason: &EndReason, at: Timestamp) {
        self.end(transfer, Status::Terminated, reason.clone(), at);
    }

    pub(super) fn expired(&mut self, transfer: TransferId, at: Timestamp) {
        self.end(transfer, Status::Expired, EndReason::TimeToLive, at);
    }

    fn end(&mut self, transfer: TransferId, status: Status, reason: EndReason, at: Timestamp) {
        let found = self.change(transfer);
        found.status = status;
        found.ended = Some(Ended { reason, at });
        found.grace_until = None;
        found.waiting_since = None;
        found.resting = false;
        if found.open_authorization().is_some() {
            self.end_authorization(transfer, &Outcome::Withdrawn);
        }
        let session = self.touch();
        session.pending = session.pending.filter(|pending| *pending != transfer);
        session.live = session.live.filter(|live| *live != transfer);
    }
}
