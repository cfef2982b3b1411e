//! What can have no effect any more is forgotten, so that worlds which differ only in it are one.
//!
//! Only while every rule is in force: each line here is one of their consequences. An incarnation takes the
//! session once; an authorisation, an epoch and a transfer that are over never come back; what was accepted is
//! answered from memory.

use super::asks::{View, Who};
use super::world::{COPIES, Call, Calling, Copied, Message, Run, World};

impl World {
    /// Forgets messages that can only be refused or ignored, then copies that can never run again.
    pub(super) fn forget_the_inert(&mut self, view: &View) {
        let keeps = self.net.map(|place| place.filter(|message| !self.is_inert(*message, view)));
        self.net = keeps;
        self.sort();
        for number in 1..=COPIES {
            let number = u8::try_from(number).expect("copies are few");
            let Some(copy) = self.copy(number) else { continue };
            let named = self.under_way(|message| message.copy() == Some(number));
            if !named && copy.run != Run::Runs && !copy.may_hold(number, view) {
                self.copies[usize::from(number) - 1] = None;
            }
        }
    }

    fn is_inert(&self, message: Message, view: &View) -> bool {
        match message {
            Message::OfSource(calling) | Message::SourceAnswered(calling) => {
                let awaited = self.source.calling.is_some_and(|open| open.call == calling.call);
                if calling.accepted { !awaited } else { is_over(calling.call, view) }
            }
            Message::Claim { copy: number } => self.copy(number).is_none_or(|copy| {
                let answered = view.holder == Who::Copy(number) && copy.run != Run::Waits;
                answered || !copy.may_hold(number, view)
            }),
            Message::Claimed { copy: number, .. }
            | Message::ClaimRefused { copy: number }
            | Message::RenewalRefused { copy: number } => {
                self.copy(number).is_none_or(|copy| copy.run == Run::Off)
            }
            Message::Renew(renewal) => view.holder != Who::Copy(renewal.copy),
            Message::Renewed(renewal, _) => {
                let dead = self.copy(renewal.copy).is_none_or(|copy| copy.run == Run::Off);
                dead || renewal.late
            }
            Message::OfCopy { copy: number, calling } | Message::CopyAnswered { copy: number, calling } => {
                let copy = self.copy(number);
                let awaited =
                    copy.and_then(|copy| copy.calling).is_some_and(|open| open.call == calling.call);
                let remembered = calling.accepted && matches!(calling.call, Call::Final { .. });
                let holds = view.holder == Who::Copy(number);
                if remembered { !awaited } else { !holds || is_over(calling.call, view) }
            }
        }
    }
}

impl Copied {
    /// It holds the session, or may still take it.
    fn may_hold(&self, number: u8, view: &View) -> bool {
        let place = (self.transfer, self.generation);
        let claims =
            self.open && view.pending.is_some_and(|found| (found.transfer, found.generation) == place);
        let live = view.live.is_some_and(|found| (found.transfer, found.generation) == place);
        let retakes = self.again && self.epoch == 0 && live;
        view.holder == Who::Copy(number) || claims || retakes
    }
}

/// A call that was not accepted and cannot be any more.
fn is_over(call: Call, view: &View) -> bool {
    let pending = view.pending.map(|pending| pending.transfer);
    match call {
        Call::Refresh { transfer, epoch, .. } => pending != Some(transfer) || epoch != view.epoch,
        Call::Stage { epoch, .. } | Call::Return { epoch } => epoch != view.epoch,
        Call::Final { transfer, .. } => pending != Some(transfer),
        Call::Checkpoint { work, follows } => view.last != follows && view.last != work,
    }
}

/// Whether a caller may act on this answer: a refusal that is lost or late is as good as a question not asked.
pub(super) fn matters(answer: Message) -> bool {
    match answer {
        Message::SourceAnswered(Calling { accepted, .. })
        | Message::CopyAnswered { calling: Calling { accepted, .. }, .. } => accepted,
        Message::ClaimRefused { .. } | Message::RenewalRefused { .. } => false,
        Message::Claim { .. }
        | Message::Claimed { .. }
        | Message::Renew(_)
        | Message::Renewed(..)
        | Message::OfSource(_)
        | Message::OfCopy { .. } => true,
    }
}
