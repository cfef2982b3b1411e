//! What is left of a move that was interrupted, decided from what is true of its transfer.

use handoff_protocol::Status;
use handoff_protocol::request::{EventType, TransferView};

/// What is true of the transfer after a failure.
#[derive(Debug)]
pub enum Truth {
    /// The destination runs, or ran: the source is over.
    Taken(Box<TransferView>),
    /// It was never claimed; without a transfer, nothing was staged.
    NotTaken(Option<Box<TransferView>>),
}

impl Truth {
    /// By the transfer's status and events.
    pub fn of(view: TransferView) -> Self {
        // The session's epoch does not tell: a return raises it, too.
        let activated = view.events.iter().any(|event| event.kind == EventType::Activated);
        let taken = match view.status {
            Status::Active | Status::Insolvent => true,
            Status::Terminated => activated,
            Status::Staged | Status::Provisioned | Status::Pushed | Status::Expired => false,
        };
        let view = Box::new(view);
        if taken { Self::Taken(view) } else { Self::NotTaken(Some(view)) }
    }
}

/// The first step that is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// All of it.
    Everything,
    /// From provision on, without another draft.
    Provision,
    /// From the source's stop on; one that stands still already says so again.
    Pause,
    /// The final snapshot is given: from the push on.
    Push,
    /// The destination is ready: activate, or learn what became of it.
    Activate,
    /// The destination has taken the session: only the source has to end.
    Retire,
    /// The transfer is over unclaimed: the source goes on.
    GiveBack,
}

impl Rest {
    /// What is left when this is true.
    pub fn of(truth: &Truth) -> Self {
        let view = match truth {
            Truth::Taken(_) => return Self::Retire,
            Truth::NotTaken(None) => return Self::Everything,
            Truth::NotTaken(Some(view)) => view,
        };
        match view.status {
            Status::Staged => Self::Provision,
            Status::Provisioned if view.is_final => Self::Push,
            Status::Provisioned => Self::Pause,
            Status::Pushed => Self::Activate,
            Status::Active | Status::Insolvent => Self::Retire,
            Status::Terminated | Status::Expired => Self::GiveBack,
        }
    }
}

#[cfg(test)]
mod tests {
    use handoff_protocol::request::{EventView, TokenText};
    use handoff_protocol::{
        Digest, EventId, IncarnationId, NanoUsd, NodeId, SessionId, Timestamp, TransferId,
    };

    use super::super::journal::{MoveEnd, MoveJournal};
    use super::*;
    use crate::config::Home;

    const TRANSFER: TransferId = TransferId::from_u128(2);

    fn view(status: Status, is_final: bool, activated: bool) -> TransferView {
        let event = EventView {
            event_id: EventId::from_u128(1),
            seq: 1,
            kind: EventType::Activated,
            at: Timestamp::from_unix_ms(0),
            actor: String::new(),
            detail: Default::default(),
        };
        TransferView {
            schema: "handoff.status.v1".to_owned(),
            transfer: TRANSFER,
            session: SessionId::from_u128(1),
            status,
            epoch: 1,
            held_epoch: None,
            version: 1,
            snapshot: Digest::of(b""),
            is_final,
            budget: None,
            lease: None,
            destination: None,
            source_must_keep_running: !activated,
            reason: None,
            grace_until: None,
            expires_at: Timestamp::from_unix_ms(0),
            labels: Default::default(),
            events: if activated { vec![event] } else { Vec::new() },
            next_cursor: None,
            request_id: None,
        }
    }

    fn planned() -> MoveJournal {
        MoveJournal {
            id: IncarnationId::from_u128(1),
            source: "a".to_owned(),
            state_dir: "/s".into(),
            workspace_dir: "/w".into(),
            control_socket: "/c".into(),
            session_id: SessionId::from_u128(1),
            epoch: None,
            draft: None,
            transfer_id: None,
            tier: "sandbox-small".into(),
            budget_usd: NanoUsd::ZERO,
            node: None,
            activations: 0,
            frozen: false,
            frozen_at_ms: None,
            nonce: None,
            ended: None,
        }
    }

    /// What may be true of the transfer, and what is left then.
    type Possible = (Option<TransferView>, Rest);

    /// The journal as each `save` leaves it, and what can be true of the transfer until the next one.
    fn moments() -> Vec<(&'static str, MoveJournal, Vec<Possible>)> {
        use Status::{Active, Expired, Insolvent, Provisioned, Pushed, Staged, Terminated};
        let ends = || {
            [
                (Some(view(Terminated, false, false)), Rest::GiveBack),
                (Some(view(Expired, true, false)), Rest::GiveBack),
            ]
        };
        let first = planned();
        let draft = MoveJournal { draft: Some(Digest::of(b"")), ..first.clone() };
        let staged = MoveJournal { transfer_id: Some(TRANSFER), epoch: Some(1), ..draft.clone() };
        let stopping = MoveJournal { frozen: true, ..staged.clone() };
        let stopped = MoveJournal { nonce: Some(IncarnationId::from_u128(7)), ..stopping.clone() };
        let activating = MoveJournal { activations: 1, ..stopped.clone() };
        let given = |status, is_final, rest| (Some(view(status, is_final, false)), rest);
        let taken = |status| (Some(view(status, true, true)), Rest::Retire);
        let mut while_working =
            vec![given(Staged, false, Rest::Provision), given(Provisioned, false, Rest::Pause)];
        while_working.extend(ends());
        let mut while_stopping = vec![given(Provisioned, false, Rest::Pause)];
        while_stopping.extend(ends());
        let mut while_stopped = while_stopping.clone();
        while_stopped.extend([given(Provisioned, true, Rest::Push), given(Pushed, true, Rest::Activate)]);
        let mut while_activating = vec![given(Pushed, true, Rest::Activate)];
        while_activating.extend(ends());
        while_activating.extend([taken(Active), taken(Insolvent), taken(Terminated)]);
        vec![
            ("planned", first, vec![(None, Rest::Everything)]),
            ("draft", draft, vec![(None, Rest::Everything)]),
            ("staged", staged, while_working),
            ("stopping", stopping, while_stopping),
            ("stopped", stopped, while_stopped),
            ("activating", activating, while_activating),
        ]
    }

    #[test]
    fn from_every_moment_there_is_a_way_on_and_it_has_what_it_needs() {
        let directory = tempfile::tempdir().expect("a directory");
        let home = Home::find(Some(directory.path().to_owned())).expect("named");
        for (moment, journal, truths) in moments() {
            journal.save(&home).expect("written");
            let found = MoveJournal::open(&home).expect("readable").expect("an open move");
            assert_eq!(found, journal, "{moment}");
            for (view, expected) in truths {
                let truth = view.map_or(Truth::NotTaken(None), Truth::of);
                let rest = Rest::of(&truth);
                assert_eq!(rest, expected, "{moment}: {truth:?}");
                let staged = found.transfer_id.is_some() && found.epoch.is_some();
                let has_what_it_needs = match rest {
                    Rest::Everything => found.transfer_id.is_none() && !found.frozen,
                    Rest::Provision | Rest::Pause | Rest::Push => staged,
                    // A final is given, and a destination takes over, only after the stop was confirmed.
                    Rest::Activate | Rest::Retire => staged && found.nonce.is_some(),
                    // A return is never sent without the nonce; without one the source is asked first.
                    Rest::GiveBack => staged,
                };
                assert!(has_what_it_needs, "{moment}: {rest:?} of {found:?}");
            }
        }
        for ended in [MoveEnd::Moved, MoveEnd::Undone] {
            MoveJournal { ended: Some(ended), ..planned() }.save(&home).expect("written");
            assert!(MoveJournal::open(&home).expect("readable").is_none(), "{ended:?}");
        }
    }

    #[test]
    fn the_chosen_node_is_asked_for_also_after_a_death() {
        let directory = tempfile::tempdir().expect("a directory");
        let home = Home::find(Some(directory.path().to_owned())).expect("named");
        let node = Some(NodeId::from_u128(5));
        MoveJournal { node, ..planned() }.save(&home).expect("written");
        let found = MoveJournal::open(&home).expect("readable").expect("an open move");
        let asked = found.provision(TokenText::new(String::new()));
        assert_eq!((asked.node_id, asked.tier.as_str()), (node, "sandbox-small"));
    }

    #[test]
    fn only_the_interrupted_move_s_agent_can_be_named_with_resume() {
        let directory = tempfile::tempdir().expect("a directory");
        let workspace_dir = directory.path().to_owned();
        let folder = workspace_dir.to_string_lossy().into_owned();
        let journal = MoveJournal { workspace_dir, ..planned() };
        for named in ["a", &journal.session_id.to_string(), &folder] {
            assert!(journal.is_of(named), "{named}");
        }
        assert!(!journal.is_of("b") && !journal.is_of("/nowhere"));
    }

    /// A status that the move has not seen coming has an answer as well.
    #[test]
    fn every_status_has_an_answer() {
        use Status::{Active, Expired, Insolvent, Provisioned, Pushed, Staged, Terminated};
        let pending = [Staged, Provisioned, Pushed];
        for status in [Staged, Provisioned, Pushed, Active, Insolvent, Terminated, Expired] {
            for (is_final, activated) in [(false, false), (true, false), (true, true)] {
                let rest = Rest::of(&Truth::of(view(status, is_final, activated)));
                let ran = matches!(status, Active | Insolvent) || (status == Terminated && activated);
                assert_eq!(rest == Rest::Retire, ran, "{status}");
                assert_eq!(rest == Rest::GiveBack, !ran && !pending.contains(&status), "{status}");
            }
        }
    }
}
