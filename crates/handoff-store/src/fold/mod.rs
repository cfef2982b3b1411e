//! The fold: decides the commands of a batch one after the other, each on the state that the ones before it led
//! to, and collects what changed. Pure but for the ids of events.

pub(crate) mod places;

use std::collections::{BTreeMap, BTreeSet};

use handoff_core::command::{Command, Stage};
use handoff_core::fact::Fact;
use handoff_core::grid::CommandKind;
use handoff_core::ledger::{Applied, Envelope, LedgerError};
use handoff_core::placement::Room;
use handoff_core::state::State;
use handoff_core::transfer::Authorization;
use handoff_core::{Decision, Policy, Refusal};
use handoff_protocol::{AuthorizationId, NodeId, ProjectId, SessionId, Timestamp, TokenId, TransferId};

use crate::changes::{
    AuthorizationChange, Changes, Increment, Remembered, RequestKey, SessionChange, SpentToken,
    TransferChange,
};
use crate::rows::{Occasion, Row};

/// A session, in its project.
pub(crate) type SessionKey = (ProjectId, SessionId);
/// A transfer, in its project.
pub(crate) type TransferKey = (ProjectId, TransferId);

/// What a batch has to know before it can be decided.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) sessions: BTreeSet<SessionKey>,
    pub(crate) transfers: BTreeSet<TransferKey>,
    pub(crate) requests: BTreeSet<RequestKey>,
    pub(crate) tokens: BTreeSet<(ProjectId, TokenId)>,
    /// Projects whose nodes' rooms are needed.
    pub(crate) rooms: BTreeSet<ProjectId>,
}

impl Wanted {
    pub(crate) fn of(envelopes: &[Envelope]) -> Self {
        let mut wanted = Self::default();
        for envelope in envelopes {
            let project = envelope.project;
            wanted.sessions.extend(envelope.command.session().map(|session| (project, session)));
            wanted.transfers.extend(envelope.command.transfer().map(|transfer| (project, transfer)));
            wanted.requests.extend(request_key(envelope));
            wanted.tokens.extend(token(&envelope.command).map(|token| (project, token)));
            if chooses_a_node(envelope.command.kind()) {
                wanted.rooms.insert(project);
            }
        }
        wanted
    }
}

/// What the store knows of it.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// The sessions, each with its pending and live transfer, those that are not closed, those that were named,
    /// and those that a pending one was carved from.
    pub(crate) states: BTreeMap<SessionKey, State>,
    pub(crate) requests: BTreeMap<RequestKey, Remembered>,
    /// Tokens among the wanted ones that have been spent.
    pub(crate) tokens: BTreeSet<(ProjectId, TokenId)>,
    pub(crate) rooms: BTreeMap<ProjectId, BTreeMap<NodeId, Room>>,
}

/// What came of a batch.
#[derive(Debug)]
pub(crate) struct Folded {
    /// One for each command, in order.
    pub(crate) answers: Vec<Result<Applied, LedgerError>>,
    pub(crate) changes: Changes,
    /// The states as they are now.
    pub(crate) states: BTreeMap<SessionKey, State>,
}

impl Folded {
    /// The transfer that a command names, if there is one.
    pub(crate) fn named(&self, envelope: &Envelope) -> Option<TransferId> {
        let named = envelope.command.transfer()?;
        let holds = |((project, _), state): (&SessionKey, &State)| {
            *project == envelope.project && state.transfers.contains_key(&named)
        };
        self.states.iter().any(holds).then_some(named)
    }
}

/// Decides a batch at this time.
pub(crate) fn fold(policy: &Policy, now: Timestamp, loaded: Loaded, envelopes: &[Envelope]) -> Folded {
    let homes = homes(&loaded.states);
    let before = loaded.states.clone();
    let changes = Changes::new(now);
    let mut fold = Fold { policy, now, loaded, homes, changes, authorizations: BTreeMap::new() };
    let answers = envelopes.iter().map(|envelope| fold.answer(envelope)).collect();
    let (changes, states) = fold.finish(&before);
    Folded { answers, changes, states }
}

struct Fold<'a> {
    policy: &'a Policy,
    now: Timestamp,
    loaded: Loaded,
    /// Which session a transfer belongs to.
    homes: BTreeMap<TransferKey, SessionId>,
    changes: Changes,
    authorizations: BTreeMap<(ProjectId, AuthorizationId), (TransferId, Authorization)>,
}

impl Fold<'_> {
    fn answer(&mut self, envelope: &Envelope) -> Result<Applied, LedgerError> {
        if let Some(applied) = self.repeated(envelope)? {
            return Ok(applied);
        }
        let key = self.key(envelope);
        self.check_version(envelope, key)?;
        let decision = self.decide(envelope, key)?;
        self.check_tokens(envelope.project, &decision)?;
        let Some(key) = key else { unreachable!("no command is accepted without a session") };
        self.accept(envelope, key, &decision);
        Ok(Applied { reply: decision.reply, replayed: false, at: self.now })
    }

    /// The answer of a request that was accepted before, stored or earlier in the batch.
    fn repeated(&self, envelope: &Envelope) -> Result<Option<Applied>, LedgerError> {
        let (Some(key), Some(request)) = (request_key(envelope), &envelope.request) else { return Ok(None) };
        match self.loaded.requests.get(&key) {
            Some(known) if known.body == request.body => {
                Ok(Some(Applied { reply: known.reply.clone(), replayed: true, at: self.now }))
            }
            Some(_) => Err(LedgerError::RequestConflict),
            None => Ok(None),
        }
    }

    /// The session that a command is about: named, or its transfer's.
    fn key(&self, envelope: &Envelope) -> Option<SessionKey> {
        let project = envelope.project;
        let home = |transfer| self.homes.get(&(project, transfer)).copied();
        let session = envelope.command.session().or_else(|| envelope.command.transfer().and_then(home));
        session.map(|session| (project, session))
    }

    fn check_version(&self, envelope: &Envelope, key: Option<SessionKey>) -> Result<(), LedgerError> {
        let (Some(expected), Some(named)) = (envelope.expected_version, envelope.command.transfer()) else {
            return Ok(());
        };
        let state = key.and_then(|key| self.loaded.states.get(&key));
        match state.and_then(|state| state.transfers.get(&named)) {
            Some(transfer) if transfer.version != expected => {
                Err(LedgerError::VersionMismatch { present: transfer.version })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn decide(&mut self, envelope: &Envelope, key: Option<SessionKey>) -> Result<Decision, LedgerError> {
        if let Command::Stage(stage) = &envelope.command {
            self.check_stage(envelope.project, stage)?;
        }
        let nothing = State::default();
        let known = key.and_then(|key| self.loaded.states.get(&key)).unwrap_or(&nothing);
        if chooses_a_node(envelope.command.kind()) {
            let rooms = self.loaded.rooms.get(&envelope.project).cloned().unwrap_or_default();
            let state = State { rooms, ..known.clone() };
            return Ok(handoff_core::decide(self.policy, &state, &envelope.command, self.now)?);
        }
        Ok(handoff_core::decide(self.policy, known, &envelope.command, self.now)?)
    }

    /// A new transfer belongs to the caller's own project and takes an id that is free.
    fn check_stage(&self, project: ProjectId, stage: &Stage) -> Result<(), LedgerError> {
        if stage.project != project {
            return Err(Refusal::NoSession { session: stage.session }.into());
        }
        if self.homes.contains_key(&(project, stage.transfer)) {
            return Err(LedgerError::RequestConflict);
        }
        Ok(())
    }

    /// The machine knows the tokens of one transfer; a key of the store is for all of them.
    fn check_tokens(&self, project: ProjectId, decision: &Decision) -> Result<(), LedgerError> {
        for fact in &decision.facts {
            if let Fact::TokenSpent { transfer, token, .. } = fact
                && self.loaded.tokens.contains(&(project, *token))
            {
                return Err(Refusal::TokenUsed { transfer: *transfer }.into());
            }
        }
        Ok(())
    }

    fn accept(&mut self, envelope: &Envelope, key: SessionKey, decision: &Decision) {
        let touched: BTreeSet<TransferId> = decision.facts.iter().filter_map(Fact::transfer).collect();
        let mut state = self.loaded.states.remove(&key).unwrap_or_default();
        let places = places::of(&state, &touched);
        let occasion = Occasion {
            project: envelope.project,
            session: Some(key.1),
            transfer: envelope.command.transfer(),
            actor: &envelope.actor,
            at: self.now,
        };
        for fact in &decision.facts {
            state.apply(fact);
            self.note(&occasion, &state, fact);
        }
        for transfer in touched {
            self.homes.insert((envelope.project, transfer), key.1);
            let last = state.transfers.get(&transfer).and_then(|found| found.authorization.clone());
            if let Some(last) = last {
                self.authorizations.insert((envelope.project, last.id), (transfer, last));
            }
        }
        if let Some(rooms) = self.loaded.rooms.get_mut(&envelope.project) {
            places::take(rooms, &places, &places::of(&state, &places.transfers));
        }
        self.loaded.states.insert(key, state);
        self.remember(envelope, decision);
    }

    /// Collects the rows that a fact leaves besides the ones it changes.
    fn note(&mut self, occasion: &Occasion<'_>, state: &State, fact: &Fact) {
        let project = occasion.project;
        let found = fact.transfer().and_then(|transfer| state.transfers.get(&transfer));
        let seq = found.map_or(0, |found| found.event_seq);
        self.changes.rows.extend(Row::of_fact(occasion, fact, seq));
        if let Fact::TokenSpent { transfer, token, operation, expires_at } = fact {
            let (transfer, token, operation, expires_at) = (*transfer, *token, *operation, *expires_at);
            self.loaded.tokens.insert((project, token));
            self.changes.tokens.push(SpentToken { project, transfer, token, operation, expires_at });
        }
        if let Fact::SpendRecorded { transfer, cost, detail } = fact {
            let (transfer, cost, detail) = (*transfer, *cost, detail.clone());
            self.changes.increments.push(Increment { project, transfer, seq, cost, detail });
        }
    }

    fn remember(&mut self, envelope: &Envelope, decision: &Decision) {
        let (Some(key), Some(request)) = (request_key(envelope), &envelope.request) else { return };
        let transfer = envelope.command.transfer();
        let remembered = Remembered { body: request.body, transfer, reply: decision.reply.clone() };
        self.loaded.requests.insert(key.clone(), remembered.clone());
        self.changes.requests.push((key, remembered));
    }

    /// Compares what is with what was loaded.
    fn finish(mut self, before: &BTreeMap<SessionKey, State>) -> (Changes, BTreeMap<SessionKey, State>) {
        let nothing = State::default();
        for (key, state) in &self.loaded.states {
            let was = before.get(key).unwrap_or(&nothing);
            if let Some(after) =
                state.session.as_ref().filter(|session| was.session.as_ref() != Some(*session))
            {
                let before = was.session.as_ref().map(|session| session.version);
                self.changes.sessions.push(SessionChange { before, after: after.clone() });
            }
            for (id, after) in &state.transfers {
                let before = was.transfers.get(id);
                if before != Some(after) {
                    let (before, after) = (before.cloned(), after.clone());
                    self.changes.transfers.push(TransferChange { project: key.0, before, after });
                }
            }
        }
        let changed = |((project, _), (transfer, authorization)): (
            (ProjectId, AuthorizationId),
            (TransferId, Authorization),
        )| AuthorizationChange { project, transfer, authorization };
        self.changes.authorizations.extend(self.authorizations.into_iter().map(changed));
        (self.changes, self.loaded.states)
    }
}

fn homes(states: &BTreeMap<SessionKey, State>) -> BTreeMap<TransferKey, SessionId> {
    let of_state = |((project, session), state): (&SessionKey, &State)| {
        state.transfers.keys().map(|transfer| ((*project, *transfer), *session)).collect::<Vec<_>>()
    };
    states.iter().flat_map(of_state).collect()
}

fn request_key(envelope: &Envelope) -> Option<RequestKey> {
    let request = envelope.request.as_ref()?;
    Some(RequestKey {
        project: envelope.project,
        principal: envelope.actor.principal.clone(),
        command: envelope.command.kind(),
        id: request.id.clone(),
    })
}

/// The token that a command wants to spend.
fn token(command: &Command) -> Option<TokenId> {
    if let Command::Provision(provision) = command {
        return Some(provision.token.id);
    }
    if let Command::Activate { token, .. } = command { Some(token.id) } else { None }
}

fn chooses_a_node(kind: CommandKind) -> bool {
    matches!(kind, CommandKind::Provision | CommandKind::Reassign)
}
