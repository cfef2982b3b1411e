//! Facts about the session and whoever holds it.

use handoff_protocol::node::ObservedState;
use handoff_protocol::request::Labels;
use handoff_protocol::{Digest, IncarnationId, ProjectId, SessionId, Status, Timestamp, Totals, TransferId};

use crate::fact::Taken;
use crate::state::{Accepted, Epoch, Holder, LastReturn, Session, Standing, State};
use crate::transfer::{EpochAccount, Outcome};

impl State {
    pub(super) fn session_opened(
        &mut self,
        session: SessionId,
        project: ProjectId,
        principal: &str,
        labels: &Labels,
    ) {
        self.session = Some(Session {
            id: session,
            project,
            labels: labels.clone(),
            epoch: Epoch::FIRST,
            holder: Holder::Source { principal: principal.to_owned() },
            pending: None,
            live: None,
            lease_until: None,
            holder_gone: false,
            last_snapshot: None,
            last_return: None,
            version: 1,
        });
    }

    pub(super) fn claimed(&mut self, transfer: TransferId, taken: &Taken) {
        self.take(transfer, taken);
        let found = self.found(transfer);
        found.status = Status::Active;
        let digest = found.snapshot;
        self.end_authorization(transfer, &Outcome::Claimed);
        let session = self.touch();
        session.pending = None;
        session.live = Some(transfer);
        let (epoch, standing) = (taken.epoch, Standing::Checkpoint);
        session.last_snapshot = Some(Accepted { digest, epoch, standing });
    }

    pub(super) fn take(&mut self, transfer: TransferId, taken: &Taken) {
        let Taken { epoch, incarnation, node, generation, lease_until, limit } = *taken;
        let found = self.change(transfer);
        let account = EpochAccount {
            node,
            generation,
            incarnation,
            limit,
            totals: Totals::default(),
            seq: 0,
            body: None,
            closed: None,
        };
        found.epochs.insert(epoch, account);
        // What this epoch may wait for is another one's report.
        found.waiting_since = None;
        let session = self.touch();
        session.epoch = epoch;
        session.holder = Holder::Incarnation { incarnation, transfer, node, generation };
        session.lease_until = Some(lease_until);
        session.holder_gone = false;
    }

    pub(super) fn checkpointed(&mut self, transfer: TransferId, epoch: Epoch, digest: Digest) {
        let accepted = Accepted { digest, epoch, standing: Standing::Checkpoint };
        self.touch().last_snapshot = Some(accepted);
        self.change(transfer);
    }

    pub(super) fn rested(&mut self, transfer: TransferId, at: Timestamp) {
        self.change(transfer).resting = true;
        let session = self.touch();
        session.holder_gone = true;
        session.lease_until = Some(at);
    }

    /// Nobody runs it yet, and from now on somebody should: the time in which its node must take it again counts
    /// from here, however long it has rested.
    pub(super) fn woken(&mut self, transfer: TransferId, at: Timestamp) {
        self.change(transfer).resting = false;
        self.touch().lease_until = Some(at);
    }

    pub(super) fn returned(&mut self, nonce: IncarnationId, epoch: Epoch, principal: &str) {
        let session = self.touch();
        session.epoch = epoch;
        session.holder = Holder::Source { principal: principal.to_owned() };
        session.last_return = Some(LastReturn { nonce, epoch });
    }

    pub(super) fn source_abandoned(&mut self, epoch: Epoch) {
        let session = self.touch();
        session.epoch = epoch;
        session.holder = Holder::None;
    }

    /// The holder is gone and its place stands: what its node saw there before says nothing any more.
    pub(super) fn holder_left(&mut self, transfer: TransferId, at: Timestamp) {
        let session = self.touch();
        session.holder_gone = true;
        session.lease_until = session.lease_until.map(|until| until.min(at));
        if let Some(present) = &mut self.change(transfer).assignment {
            present.observed = present.observed.filter(|seen| *seen == ObservedState::Absent);
        }
    }
}
