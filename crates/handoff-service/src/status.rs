//! Asking how things are, and the answer to a command on a transfer.

use handoff_core::ledger::{Filter, Found, Request};
use handoff_core::{Command, Refusal, Role};
use handoff_protocol::listing::{
    EventPage, EventQuery, NodePage, SessionPage, SessionQuery, TierPage, TransferPage, TransferQuery,
    ViewQuery,
};
use handoff_protocol::request::{EventView, SessionView, TransferView};
use handoff_protocol::{NodeId, ProjectId, SessionId, Status, TransferId};

use crate::access::Principal;
use crate::asked::Call;
use crate::error::ServiceError;
use crate::service::Service;
use crate::view;
use crate::wait::News;

/// Rows of a page unless the caller names a number.
const PAGE: usize = 100;
/// Rows of a page at the most.
const LARGEST_PAGE: usize = 1000;
/// Who may look at everything of the project.
const PEOPLE: [Role; 5] = [Role::Viewer, Role::Caller, Role::Source, Role::Orchestrator, Role::Admin];
/// Whoever is known may look; a node too, at what is its own.
const LOOK: [Role; 6] =
    [Role::Viewer, Role::Caller, Role::Source, Role::Orchestrator, Role::Admin, Role::Node];

fn page(limit: Option<usize>) -> usize {
    limit.unwrap_or(PAGE).clamp(1, LARGEST_PAGE)
}

impl Service {
    /// Applies a command on a transfer and answers with the transfer.
    pub(crate) async fn change(
        &self,
        call: &Call,
        transfer: TransferId,
        request: Request,
        command: Command,
    ) -> Result<TransferView, ServiceError> {
        self.give(call, Some(request.clone()), command).await?;
        self.answered(call, transfer, request).await
    }

    /// The transfer after a command, with the request id that counts for a repetition.
    pub(crate) async fn answered(
        &self,
        call: &Call,
        transfer: TransferId,
        request: Request,
    ) -> Result<TransferView, ServiceError> {
        let mut view = self.view(&call.principal, transfer, 0, PAGE).await?;
        view.request_id = Some(request.id);
        Ok(view)
    }

    async fn view(
        &self,
        principal: &Principal,
        transfer: TransferId,
        after: u64,
        limit: usize,
    ) -> Result<TransferView, ServiceError> {
        let found = self.found_by(principal, transfer).await?;
        let (events, next_cursor) = self.event_page(principal.project, transfer, after, limit).await?;
        Ok(view::transfer(&found, events, next_cursor))
    }

    /// A transfer that this one may see. A node sees what it has, or had and is not yet proved rid of.
    async fn found_by(&self, principal: &Principal, transfer: TransferId) -> Result<Found, ServiceError> {
        let found = self.found(principal.project, transfer).await?;
        let is_of = |node: NodeId| {
            let present = found.transfer.assignment.is_some_and(|assignment| assignment.node == node);
            present || found.transfer.former_assignments.values().any(|former| *former == node)
        };
        if principal.node().is_none_or(is_of) {
            Ok(found)
        } else {
            Err(Refusal::NoTransfer { transfer }.into())
        }
    }

    async fn event_page(
        &self,
        project: ProjectId,
        transfer: TransferId,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<EventView>, Option<u64>), ServiceError> {
        let mut events = self.inner.ledger.events(project, transfer, after, limit + 1).await?;
        let more = events.len() > limit;
        events.truncate(limit);
        let next_cursor = events.last().filter(|_| more).map(|last| last.seq);
        Ok((events, next_cursor))
    }

    /// One transfer with a page of its events; waits for a newer version where that is asked.
    ///
    /// # Errors
    /// Where there is no such transfer, or the ledger does not answer.
    pub async fn get_status(
        &self,
        principal: &Principal,
        transfer: TransferId,
        query: ViewQuery,
    ) -> Result<TransferView, ServiceError> {
        self.permit_roles(principal, &LOOK, "look").await?;
        let mut watch = self.watch(query.wait_s.unwrap_or(0).saturating_mul(1000));
        loop {
            let (after, limit) = (query.after.unwrap_or(0), page(query.limit));
            let view = self.view(principal, transfer, after, limit).await?;
            let newer = query.newer_than.is_none_or(|version| view.version > version);
            if newer || watch.news().await? == News::TimeOver {
                return Ok(view);
            }
        }
    }

    /// A page of one transfer's events; waits for the first where that is asked.
    ///
    /// # Errors
    /// Where there is no such transfer, or the ledger does not answer.
    pub async fn events(
        &self,
        principal: &Principal,
        transfer: TransferId,
        query: EventQuery,
    ) -> Result<EventPage, ServiceError> {
        self.permit_roles(principal, &LOOK, "look").await?;
        self.found_by(principal, transfer).await?;
        let mut watch = self.watch(query.wait_s.unwrap_or(0).saturating_mul(1000));
        loop {
            let (after, limit) = (query.after.unwrap_or(0), page(query.limit));
            let (events, next_cursor) = self.event_page(principal.project, transfer, after, limit).await?;
            if !events.is_empty() || watch.news().await? == News::TimeOver {
                return Ok(EventPage { events, next_cursor });
            }
        }
    }

    /// A page of transfers, without events.
    ///
    /// # Errors
    /// Where a status is none of the seven, or the ledger does not answer.
    pub async fn transfers(
        &self,
        principal: &Principal,
        query: &TransferQuery,
    ) -> Result<TransferPage, ServiceError> {
        self.permit_roles(principal, &LOOK, "look").await?;
        let limit = page(query.limit);
        let filter = Filter {
            statuses: statuses(query.status.as_deref())?,
            session: query.session_id,
            node: principal.node(),
            unclosed: query.unclosed,
            before: query.before,
            limit: limit + 1,
        };
        let mut found = self.inner.ledger.transfers(principal.project, &filter).await?.found;
        let more = found.len() > limit;
        found.truncate(limit);
        let next_cursor = found.last().filter(|_| more).map(|last| last.transfer.id);
        let transfers = found.iter().map(|found| view::transfer(found, Vec::new(), None)).collect();
        Ok(TransferPage { transfers, next_cursor })
    }

    /// One session.
    ///
    /// # Errors
    /// Where there is no such session, or the ledger does not answer.
    pub async fn session(
        &self,
        principal: &Principal,
        session: SessionId,
    ) -> Result<SessionView, ServiceError> {
        self.permit_roles(principal, &LOOK, "look").await?;
        if principal.node().is_some() {
            let own =
                Filter { session: Some(session), node: principal.node(), limit: 1, ..Filter::default() };
            if self.inner.ledger.transfers(principal.project, &own).await?.is_empty() {
                return Err(Refusal::NoSession { session }.into());
            }
        }
        Ok(view::session(&self.found_session(principal.project, session).await?))
    }

    /// A page of sessions.
    ///
    /// # Errors
    /// Where the ledger does not answer.
    pub async fn sessions(
        &self,
        principal: &Principal,
        query: SessionQuery,
    ) -> Result<SessionPage, ServiceError> {
        self.permit_roles(principal, &PEOPLE, "list sessions").await?;
        let limit = page(query.limit);
        let mut found = self.inner.ledger.sessions(principal.project, query.before, limit + 1).await?;
        let more = found.len() > limit;
        found.truncate(limit);
        let next_cursor = found.last().filter(|_| more).map(|last| last.id);
        Ok(SessionPage { sessions: found.iter().map(view::session).collect(), next_cursor })
    }

    /// The sizes on offer.
    ///
    /// # Errors
    /// Where whoever asks may not look.
    pub async fn tiers(&self, principal: &Principal) -> Result<TierPage, ServiceError> {
        self.permit_roles(principal, &LOOK, "look").await?;
        Ok(TierPage { tiers: self.config().policy.tiers.clone() })
    }

    /// All nodes, and what they have left; a node sees itself.
    ///
    /// # Errors
    /// Where the ledger does not answer.
    pub async fn nodes(&self, principal: &Principal) -> Result<NodePage, ServiceError> {
        self.permit_roles(principal, &LOOK, "look").await?;
        let rooms = self.inner.ledger.rooms(principal.project).await?;
        let mut records = self.inner.ledger.nodes(principal.project).await?;
        records.retain(|record| principal.node().is_none_or(|node| node == record.id));
        records.sort_by_key(|record| record.id);
        let view = |record: handoff_core::ledger::NodeRecord| {
            let room = rooms.get(&record.id);
            view::node(record, room)
        };
        Ok(NodePage { nodes: records.into_iter().map(view).collect() })
    }
}

fn statuses(words: Option<&str>) -> Result<Vec<Status>, ServiceError> {
    let words = words.unwrap_or_default().split(',').filter(|word| !word.is_empty());
    let parse = |word: &str| {
        Status::parse(word).ok_or_else(|| ServiceError::InvalidArgument {
            field: "status",
            why: "a word is none of the seven".to_owned(),
        })
    };
    words.map(parse).collect()
}
