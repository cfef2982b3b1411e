//! What the writer still knows from the batches before.
//!
//! One process has the file open and one thread in it writes, so what that thread last committed is what the
//! file says. States are taken out for a batch and put back once it is committed: after a failure they are read
//! anew. Every write still carries the version that it was decided on.

use std::collections::{BTreeMap, BTreeSet};

use handoff_core::state::{Session, State};
use handoff_core::transfer::Transfer;
use handoff_protocol::{ProjectId, SessionId, TransferId};

use crate::chain::{ChainKey, Head};
use crate::fold::{SessionKey, TransferKey};

/// Sessions that are kept at most; beyond, the ones that were not used longest are read anew.
const SESSIONS: usize = 2048;

#[derive(Default)]
pub(super) struct Cache {
    states: BTreeMap<SessionKey, (u64, State)>,
    homes: BTreeMap<TransferKey, SessionId>,
    heads: BTreeMap<ChainKey, Head>,
    /// Counts batches: an entry carries the one that used it last.
    batch: u64,
}

impl Cache {
    /// The session of a transfer, where it is known.
    pub(super) fn home(&self, key: TransferKey) -> Option<SessionId> {
        self.homes.get(&key).copied()
    }

    /// The state of a session, which is the caller's from now on.
    pub(super) fn take(&mut self, key: SessionKey) -> Option<State> {
        let (_, state) = self.states.remove(&key)?;
        self.forget_homes(key.0, &state);
        Some(state)
    }

    /// The last row of a chain, where it is known.
    pub(super) fn head(&self, chain: ChainKey) -> Option<Head> {
        self.heads.get(&chain).copied()
    }

    /// Keeps what a committed batch led to.
    pub(super) fn put(&mut self, states: BTreeMap<SessionKey, State>) {
        self.batch += 1;
        for (key, mut state) in states {
            let Some(session) = &state.session else { continue };
            let kept = kept(session, &state.transfers);
            state.transfers.retain(|id, _| kept.contains(id));
            self.homes.extend(state.transfers.keys().map(|transfer| ((key.0, *transfer), key.1)));
            self.states.insert(key, (self.batch, state));
        }
        if self.states.len() > SESSIONS {
            self.shrink();
        }
    }

    /// Keeps the last rows of chains that were committed: of transfers whose states are kept, and of projects.
    pub(super) fn put_heads(&mut self, heads: BTreeMap<ChainKey, Head>) {
        for (chain, head) in heads {
            let is_kept = chain.1.is_none_or(|transfer| self.homes.contains_key(&(chain.0, transfer)));
            if is_kept {
                self.heads.insert(chain, head);
            } else {
                self.heads.remove(&chain);
            }
        }
    }

    /// Forgets everything: what was last written may not be what is stored.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Forgets the older half.
    fn shrink(&mut self) {
        let mut batches: Vec<u64> = self.states.values().map(|(batch, _)| *batch).collect();
        batches.sort_unstable();
        let middle = batches[batches.len() / 2];
        let old = self.states.extract_if(.., |_, (batch, _)| *batch < middle).collect::<Vec<_>>();
        for ((project, _), (_, state)) in old {
            self.forget_homes(project, &state);
            state.transfers.keys().for_each(|transfer| {
                self.heads.remove(&(project, Some(*transfer)));
            });
        }
    }

    fn forget_homes(&mut self, project: ProjectId, state: &State) {
        for transfer in state.transfers.keys() {
            self.homes.remove(&(project, *transfer));
        }
    }
}

/// The transfers that every decision on the session may look at; any other is read when it is named.
fn kept(session: &Session, transfers: &BTreeMap<TransferId, Transfer>) -> BTreeSet<TransferId> {
    let mut kept: BTreeSet<TransferId> = transfers
        .values()
        .filter(|found| !found.ledger_closed)
        .map(|found| found.id)
        .chain(session.pending)
        .chain(session.live)
        .collect();
    let mut left: Vec<TransferId> = kept.iter().copied().collect();
    while let Some(id) = left.pop() {
        let from = transfers.get(&id).and_then(|found| found.budget?.carved).map(|carved| carved.from);
        left.extend(from.filter(|from| kept.insert(*from)));
    }
    kept
}

#[cfg(test)]
mod tests {
    use handoff_protocol::Digest;

    use super::*;
    use crate::sqlite::round_trip;

    fn key(number: u128) -> SessionKey {
        (round_trip::PROJECT, SessionId::from_u128(number))
    }

    fn state(number: u128) -> State {
        let session = Session { id: SessionId::from_u128(number), ..round_trip::session() };
        let mut transfer = round_trip::transfer(&session);
        transfer.id = TransferId::from_u128(number);
        State { session: Some(session), transfers: [(transfer.id, transfer)].into(), ..State::default() }
    }

    fn chain(number: u128) -> ChainKey {
        (round_trip::PROJECT, Some(TransferId::from_u128(number)))
    }

    fn head(link: u64) -> Head {
        Head { link, hash: Digest::of(b"") }
    }

    #[test]
    fn what_is_taken_is_gone_until_it_is_put_back() {
        let mut cache = Cache::default();
        cache.put([(key(1), state(1))].into());
        let transfer = (round_trip::PROJECT, TransferId::from_u128(1));
        assert_eq!(cache.home(transfer), Some(key(1).1));
        assert_eq!(cache.take(key(1)), Some(state(1)));
        assert_eq!((cache.take(key(1)), cache.home(transfer)), (None, None));
        cache.put([(key(1), state(1))].into());
        assert_eq!(cache.take(key(1)), Some(state(1)));
    }

    #[test]
    fn a_closed_transfer_and_its_chain_are_not_kept_behind_what_is_stored() {
        let mut cache = Cache::default();
        cache.put([(key(1), state(1))].into());
        cache.put_heads([(chain(1), head(5))].into());
        let mut closed = cache.take(key(1)).expect("it is kept");
        closed.transfers.values_mut().for_each(|found| found.ledger_closed = true);
        cache.put([(key(1), closed)].into());
        cache.put_heads([(chain(1), head(6))].into());
        assert!(cache.head(chain(1)).is_none(), "an older head would be worse than none");
        assert_eq!(cache.take(key(1)).map(|state| state.transfers.len()), Some(0));
    }

    #[test]
    fn a_transfer_that_an_open_one_was_carved_from_is_kept() {
        let mut both = state(1);
        let mut former = both.transfers[&TransferId::from_u128(1)].clone();
        (former.id, former.ledger_closed) = (TransferId::from_u128(9), true);
        let open = both.transfers.get_mut(&TransferId::from_u128(1)).expect("it is there");
        let amount = handoff_protocol::NanoUsd::ZERO;
        let carved = handoff_core::transfer::Carved { from: former.id, amount };
        open.budget.as_mut().expect("it has one").carved = Some(carved);
        both.transfers.insert(former.id, former);
        let mut cache = Cache::default();
        cache.put([(key(1), both.clone())].into());
        assert_eq!(cache.take(key(1)), Some(both));
    }

    #[test]
    fn the_ones_not_used_longest_are_forgotten() {
        let mut cache = Cache::default();
        for number in 0..5_000u128 {
            cache.put([(key(number), state(number))].into());
            cache.put_heads([(chain(number), head(1))].into());
        }
        assert!(cache.states.len() <= SESSIONS);
        assert_eq!((cache.homes.len(), cache.heads.len()), (cache.states.len(), cache.states.len()));
        assert_eq!(cache.take(key(4_999)), Some(state(4_999)));
        assert_eq!(cache.take(key(0)), None);
    }
}
