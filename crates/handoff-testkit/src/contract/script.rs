//! A script of commands chosen by numbers: mostly what comes next, now and then something out of place.

use handoff_core::command::{Command, RefreshBy};
use handoff_core::ledger::{Envelope, Found};
use handoff_core::state::Holder;
use handoff_protocol::node::ObservedState;
use handoff_protocol::{Digest, NanoUsd, Status, TransferId};

use super::moves::Move;
use super::world::{SOURCE, World, fresh};

/// Sessions that a script moves at the same time.
const SESSIONS: usize = 3;

/// How long a script waits after this choice: mostly less than a lease, now and then longer than anybody does.
pub const fn pause_ms(choice: u32) -> u64 {
    if choice.is_multiple_of(29) { 200_000 } else { (choice % 7) as u64 * 5_000 }
}

/// Chooses commands. The same numbers on the same state choose the same kinds of command.
#[derive(Debug, Default)]
pub struct Script {
    moves: Vec<Move>,
}

impl Script {
    /// The next command in this world.
    pub async fn next(&mut self, world: &World, choice: u32) -> Envelope {
        let pick = usize::try_from(choice >> 8).unwrap_or(0);
        if self.moves.len() < SESSIONS {
            let moved = world.fresh_move();
            let stage = world.stage(&moved);
            self.moves.push(moved);
            return world.envelope(stage);
        }
        let place = pick % SESSIONS;
        let found = world.ledger().transfer(world.project, self.moves[place].transfer).await;
        let Some(found) = found.expect("the store answers") else {
            return world.envelope(world.stage(&self.moves[place]));
        };
        self.catch_up(place, &found, choice);
        let moved = &self.moves[place];
        let command = match choice % 16 {
            0 => moved.terminate(),
            1 => moved.expire(),
            2 => moved.observe(observed(choice >> 4)),
            3 => self.successor(world, place, &found),
            4 => refresh(&found, moved, choice),
            5 => moved.reassign(handoff_protocol::Timestamp::default()),
            6 => moved.raise(i64::from(choice >> 4) * 100),
            7 => odd(moved, choice >> 4),
            _ => next_step(world, &found, moved, choice >> 4),
        };
        world.envelope(command)
    }

    /// What the node and the source know by now.
    fn catch_up(&mut self, place: usize, found: &Found, choice: u32) {
        let moved = &mut self.moves[place];
        moved.epoch = found.session.epoch;
        moved.snapshot = found.transfer.snapshot;
        if let Some(assignment) = found.transfer.assignment {
            (moved.node, moved.generation) = (assignment.node, assignment.generation);
        }
        match found.session.holder {
            Holder::Incarnation { incarnation, transfer, .. } if transfer == moved.transfer => {
                moved.incarnation = incarnation;
            }
            Holder::Incarnation { .. } | Holder::Source { .. } | Holder::None => {
                moved.incarnation = handoff_protocol::IncarnationId::from_u128(u128::from(choice));
            }
        }
    }

    fn successor(&mut self, world: &World, place: usize, found: &Found) -> Command {
        let successor: TransferId = fresh();
        let command = world.stage_successor(&self.moves[place], successor);
        if found.session.pending.is_none() {
            self.moves[place].transfer = successor;
        }
        command
    }
}

fn observed(choice: u32) -> ObservedState {
    let states = [
        ObservedState::Warm,
        ObservedState::Prepared,
        ObservedState::Running,
        ObservedState::Frozen,
        ObservedState::Resting,
        ObservedState::Absent,
        ObservedState::Failed,
    ];
    states[usize::try_from(choice).unwrap_or(0) % states.len()]
}

fn refresh(found: &Found, moved: &Move, choice: u32) -> Command {
    let snapshot = Digest::of(&choice.to_be_bytes());
    match found.session.holder {
        Holder::Incarnation { incarnation, node, .. } if choice & 64 == 0 => {
            moved.refresh(RefreshBy::Incarnation(node, incarnation), Some(snapshot), choice & 16 == 0)
        }
        Holder::Incarnation { .. } => moved.refresh(RefreshBy::Principal(SOURCE.to_owned()), None, true),
        Holder::Source { .. } | Holder::None => {
            moved.refresh(RefreshBy::Principal(SOURCE.to_owned()), Some(snapshot), choice & 16 == 0)
        }
    }
}

/// What may be refused at this point, or not.
fn odd(moved: &Move, choice: u32) -> Command {
    let session = moved.session;
    match choice % 6 {
        0 => Command::Wake { session },
        1 => Command::AbandonSource { session },
        2 => moved.take_back(handoff_protocol::IncarnationId::from_u128(u128::from(choice))),
        3 => Command::WriteOff { transfer: moved.transfer, epoch: moved.epoch },
        4 => moved.reap(),
        _ => moved.rest(),
    }
}

/// What usually comes next.
fn next_step(world: &World, found: &Found, moved: &Move, choice: u32) -> Command {
    let transfer = &found.transfer;
    match transfer.status {
        Status::Staged if transfer.is_final(found.session.epoch) => {
            let nano = i64::from(choice % 1000) * 10_000;
            world.provision(&Move { budget: NanoUsd::from_nano(nano), ..moved.clone() })
        }
        Status::Staged => refresh(found, moved, choice & !16),
        Status::Provisioned if transfer.push.is_none() => moved.push(),
        Status::Provisioned => moved.receipt(),
        Status::Pushed => match transfer.open_authorization().map(|open| open.id) {
            None => world.activate(moved),
            Some(id) if choice.is_multiple_of(5) => moved.withdraw(id),
            Some(id) if choice % 5 == 1 => moved.decline(id),
            Some(id) => moved.claim(id),
        },
        Status::Active | Status::Insolvent => live_step(found, moved, choice),
        Status::Terminated | Status::Expired if choice.is_multiple_of(2) => moved.place_gone(),
        Status::Terminated | Status::Expired => report(found, moved, choice, true),
    }
}

fn live_step(found: &Found, moved: &Move, choice: u32) -> Command {
    if found.transfer.resting {
        return Command::Wake { session: moved.session };
    }
    let books = found.transfer.epochs.get(&found.session.epoch);
    if books.is_some_and(|account| account.closed.is_some()) && choice & 32 == 0 {
        return if choice.is_multiple_of(2) {
            moved.rest()
        } else {
            moved.checkpoint(Digest::of(&choice.to_be_bytes()))
        };
    }
    match choice % 8 {
        0 => moved.renew(),
        1 => moved.checkpoint(Digest::of(&choice.to_le_bytes())),
        2 => moved.record_spend(i64::from(choice % 4096)),
        3 => {
            let incarnation = handoff_protocol::IncarnationId::from_u128(u128::from(choice));
            let snapshot = found.session.last_snapshot.map_or(moved.snapshot, |last| last.digest);
            Move { incarnation, snapshot, ..moved.clone() }.reclaim()
        }
        4 => report(found, moved, choice, true),
        _ => report(found, moved, choice, false),
    }
}

/// The next report of the newest epoch, within its limit.
fn report(found: &Found, moved: &Move, choice: u32, closing: bool) -> Command {
    let newest = found.transfer.epochs.last_key_value();
    let (epoch, account) = newest.map_or((moved.epoch, None), |(epoch, account)| (*epoch, Some(account)));
    let (seq, spent, limit) =
        account.map_or((0, 0, 0), |last| (last.seq, last.totals.model_usd.nano(), last.limit.nano()));
    let more = (limit - spent) * i64::from(choice % 5) / 4;
    let report = Move { epoch, ..moved.clone() }.report(seq + u64::from(choice % 3), spent + more);
    let report = if choice.is_multiple_of(2) { report.exhausted() } else { report };
    if closing { report.closing().send() } else { report.send() }
}
