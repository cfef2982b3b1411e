//! What each step does.

use handoff_core::Reply;

use super::asks::{Ask, View, Who};
use super::inert::matters;
use super::world::{Call, Calling, Copied, Message, Renewal, Run, Told, World};
use super::{ANY, Fault, MoveModel, Step, Way, epoch_of, fresh, told};

impl MoveModel {
    /// Takes a step; none where it is not possible.
    pub(super) fn take(&self, world: &mut World, step: Step) -> Option<()> {
        match step {
            Step::SourceWorks => world.source.work += 1,
            Step::SourceGoesOnUnasked => world.source.run = Run::Runs,
            Step::SourceCrashes => {
                count(&mut world.crashes, self.bounds.crashes);
                (world.source.run, world.source.calling) = (Run::Off, None);
            }
            Step::SourceCalls(call, way) => {
                // It stops before it gives a final.
                if matches!(call, Call::Stage { is_final: true, .. } | Call::Refresh { is_final: true, .. }) {
                    world.source.run = Run::Quiet;
                }
                world.source.calling = Some(fresh(call));
                self.travel(world, Message::OfSource(fresh(call)), way)?;
            }
            Step::SourceAsksAgain => {
                let calling = world.source.calling?;
                self.travel(world, Message::OfSource(calling), Way::Through)?;
            }
            Step::Command(ask) => self.command(world, ask)?,
            Step::Resume => {
                world.transfers += 1;
                self.ask(world, Ask::Resume { transfer: world.transfers })?;
                self.ask(world, Ask::Provision { transfer: world.transfers })?;
            }
            Step::LeaseEnds => {
                self.ask(world, Ask::LeaseEnds)?;
                self.grants_run_out(world);
            }
            Step::Deliver(place, way) => {
                let message = world.pick(place)?;
                self.travel(world, message, way)?;
            }
            Step::Lose(place) => {
                count(&mut world.losses, self.bounds.losses);
                world.pick(place)?;
            }
            Step::Start { .. }
            | Step::Renew(..)
            | Step::CopyWorks(_)
            | Step::CopyCalls(..)
            | Step::CopyCrashes(_)
            | Step::CopyRests { .. }
            | Step::CopyProvedAbsent(_)
            | Step::CopyLeaseEnds(_)
            | Step::CopyAsksAgain(_) => self.take_of_copy(world, step)?,
        }
        Some(())
    }

    fn take_of_copy(&self, world: &mut World, step: Step) -> Option<()> {
        match step {
            Step::Start { again, way } => self.start(world, again, way)?,
            Step::Renew(copy, way) => {
                let renewal = Renewal { copy, latest: true, spent: false, late: false };
                self.travel(world, Message::Renew(renewal), way)?;
            }
            Step::CopyWorks(number) => world.copy_mut(number)?.work += 1,
            Step::CopyCalls(number, call, way) => {
                let copy = world.copy_mut(number)?;
                copy.calling = Some(fresh(call));
                if let Call::Final { transfer, .. } = call {
                    (copy.gave_to, copy.quiesce_for) = (transfer, 0);
                    world.change_net(|message| before_the_final(message, number));
                }
                self.travel(world, Message::OfCopy { copy: number, calling: fresh(call) }, way)?;
            }
            Step::CopyCrashes(number) => {
                count(&mut world.crashes, self.bounds.crashes);
                end(world.copy_mut(number)?);
            }
            Step::CopyRests { copy: number, answered } => {
                let Copied { transfer, node, epoch, .. } = *world.copy(number)?;
                self.ask(world, Ask::Rest { transfer, node, epoch })?;
                let copy = world.copy_mut(number)?;
                copy.run = Run::Quiet;
                if answered {
                    end(copy);
                }
                // It stopped for good: what it asked before must not set it going again.
                world.change_net(|message| before_the_final(message, number));
                if !answered {
                    count(&mut world.losses, self.bounds.losses);
                }
            }
            Step::CopyProvedAbsent(number) => {
                let Copied { transfer, node, generation, .. } = *world.copy(number)?;
                self.ask(world, Ask::Absent { transfer, node, generation, copy: number })?;
            }
            Step::CopyLeaseEnds(number) => {
                let copy = world.copy_mut(number)?;
                copy.leased = false;
                if copy.run == Run::Runs {
                    copy.run = Run::Frozen;
                }
            }
            Step::CopyAsksAgain(number) => {
                let again = match world.copy(number)?.calling {
                    Some(calling) => Message::OfCopy { copy: number, calling },
                    None => Message::Claim { copy: number },
                };
                self.travel(world, again, Way::Through)?;
            }
            _ => return None,
        }
        Some(())
    }

    /// A message goes its way.
    fn travel(&self, world: &mut World, message: Message, way: Way) -> Option<()> {
        match way {
            Way::Through => {
                if let Some(answer) = self.arrive(world, message)? {
                    self.arrive(world, answer)?;
                }
            }
            Way::Late => {
                count(&mut world.delays, self.bounds.delays);
                world.keep(message)?;
            }
            Way::AnswerLate => {
                count(&mut world.delays, self.bounds.delays);
                let answer = self.arrive(world, message)??;
                world.keep(Some(answer).filter(|answer| matters(*answer))?)?;
            }
            Way::AnswerLost => {
                count(&mut world.losses, self.bounds.losses);
                let answer = self.arrive(world, message)?;
                self.unanswered(world, answer.filter(|answer| matters(*answer))?);
            }
            Way::Twice => {
                count(&mut world.duplicates, self.bounds.duplicates);
                let answer = self.arrive(world, message)?;
                world.keep(second(message, answer))?;
                if let Some(answer) = answer {
                    self.arrive(world, answer)?;
                }
            }
        }
        Some(())
    }

    /// What arrives, and what it is answered with.
    fn arrive(&self, world: &mut World, message: Message) -> Option<Option<Message>> {
        match message {
            Message::Claim { copy } => self.claim(world, copy).map(Some),
            Message::Renew(renewal) => self.renew(world, renewal).map(Some),
            Message::OfSource(calling) => Some(Some(self.source_called(world, calling))),
            Message::OfCopy { copy, calling } => self.copy_called(world, copy, calling).map(Some),
            Message::Claimed { copy, epoch } => {
                self.claimed(world, copy, epoch);
                Some(None)
            }
            Message::Renewed(renewal, told) => {
                self.renewed(world, renewal, told);
                Some(None)
            }
            Message::SourceAnswered(calling) => {
                self.source_answered(world, calling);
                Some(None)
            }
            Message::CopyAnswered { copy, calling } => {
                copy_answered(world, copy, calling);
                Some(None)
            }
            Message::ClaimRefused { copy: number } => {
                if let Some(copy) = world.copy_mut(number).filter(|copy| copy.run == Run::Waits) {
                    end(copy);
                }
                Some(None)
            }
            // A refused epoch or generation ends the incarnation.
            Message::RenewalRefused { copy } => {
                world.copy_mut(copy).map(end);
                Some(None)
            }
        }
    }

    /// An answer was lost: what its caller cannot know is remembered for it.
    fn unanswered(&self, world: &mut World, answer: Message) {
        match answer {
            Message::SourceAnswered(calling) => world.source.calling = Some(calling),
            Message::CopyAnswered { copy, calling } => {
                if let Some(copy) = world.copy_mut(copy) {
                    copy.calling = Some(calling);
                }
            }
            _ => {}
        }
    }

    /// Asks the control plane, which must accept.
    fn ask(&self, world: &mut World, ask: Ask) -> Option<Reply> {
        let answer = self.plane.ask(world.core, ask);
        let reply = answer.said.ok()?;
        world.core = answer.core;
        Some(reply)
    }

    fn command(&self, world: &mut World, ask: Ask) -> Option<()> {
        let open = |view: View| view.pending.is_some_and(|pending| pending.authorized);
        let was_open = open(self.view(world));
        self.ask(world, ask)?;
        if was_open && !open(self.view(world)) {
            world.copies.iter_mut().flatten().for_each(|copy| copy.open = false);
        }
        Some(())
    }

    /// A node loads what is wanted of it, and its copy claims.
    fn start(&self, world: &mut World, again: bool, way: Way) -> Option<()> {
        let view = self.view(world);
        let (transfer, node, generation, loaded) = if again {
            let live = view.live?;
            (live.transfer, live.node, live.generation, view.last)
        } else {
            let pending = view.pending?;
            (pending.transfer, pending.node, pending.generation, pending.work)
        };
        let place = world.copies.iter().position(Option::is_none)?;
        world.copies[place] = Some(Copied {
            transfer,
            node,
            generation,
            epoch: 0,
            run: Run::Waits,
            work: loaded,
            known: loaded,
            leased: self.fault != Fault::LeaseFromGrant,
            again,
            open: !again,
            quiesce_for: 0,
            gave_to: 0,
            calling: None,
        });
        let copy = u8::try_from(place + 1).expect("copies are few");
        self.travel(world, Message::Claim { copy }, way)
    }

    /// When the control plane's count is over, so is the holder's, of every request that it accepted until then.
    fn grants_run_out(&self, world: &mut World) {
        if self.fault == Fault::LeaseFromGrant {
            return;
        }
        let Who::Copy(holder) = self.view(world).holder else { return };
        world.change_net(|message| match message {
            Message::Renew(renewal) if renewal.copy == holder && renewal.spent => {
                Message::Renew(Renewal { late: true, ..renewal })
            }
            Message::Renewed(renewal, told) if renewal.copy == holder => {
                Message::Renewed(Renewal { late: true, ..renewal }, told)
            }
            other => other,
        });
    }

    fn claim(&self, world: &mut World, number: u8) -> Option<Message> {
        let before = self.view(world);
        let Copied { transfer, node, generation, known: work, open, again, .. } = *world.copy(number)?;
        let ask = if again {
            Ask::Reclaim { transfer, node, generation, copy: number, work }
        } else {
            Ask::Claim { transfer, node, generation, copy: number, work, open }
        };
        let Some(epoch) = self.ask(world, ask).as_ref().and_then(epoch_of) else {
            return Some(Message::ClaimRefused { copy: number });
        };
        if epoch != before.epoch {
            self.taken(world, &before, work);
            world.accepted = world.accepted.max(work);
        }
        Some(Message::Claimed { copy: number, epoch })
    }

    /// Somebody took the session with so much work: what of its former holder's is missing?
    fn taken(&self, world: &mut World, before: &View, work: u8) {
        world.broken.lost |= work < world.accepted;
        let stopped = before.pending.is_some_and(|pending| pending.quiesced);
        let did = match before.holder {
            Who::Source => (world.source.run != Run::Off).then_some(world.source.work),
            Who::Copy(number) => world.copy(number).filter(|copy| copy.run != Run::Off).map(|copy| copy.work),
            Who::Nobody => None,
        };
        world.broken.cut |= stopped && did.is_some_and(|did| did > work);
    }

    fn claimed(&self, world: &mut World, number: u8, epoch: u8) {
        let from_grant = self.fault == Fault::LeaseFromGrant;
        let Some(copy) = world.copy_mut(number).filter(|copy| copy.run == Run::Waits) else { return };
        copy.epoch = epoch;
        copy.leased |= from_grant;
        // Without an unexpired lease there is no `go`.
        copy.run = if copy.leased { Run::Runs } else { Run::Frozen };
    }

    fn renew(&self, world: &mut World, renewal: Renewal) -> Option<Message> {
        let before = self.view(world);
        let copy = renewal.copy;
        let Copied { transfer, node, generation, epoch, .. } = *world.copy(copy)?;
        let Some(reply) = self.ask(world, Ask::Renew { transfer, node, generation, copy, epoch }) else {
            return Some(Message::RenewalRefused { copy });
        };
        note_stray(world, &before, Some((copy, epoch)));
        // What is still under way was sent earlier, and ends no later than what was granted now.
        world.change_net(|message| match message {
            Message::Renew(earlier) if earlier.copy == copy => {
                Message::Renew(Renewal { spent: true, ..earlier })
            }
            other => other,
        });
        Some(Message::Renewed(renewal, told(&reply)?))
    }

    fn renewed(&self, world: &mut World, renewal: Renewal, told: Told) {
        let honors = self.fault == Fault::HonorsLateRun;
        let Some(copy) = world.copy_mut(renewal.copy).filter(|copy| copy.run != Run::Off) else { return };
        if renewal.late {
            return;
        }
        copy.leased = true;
        match (told, copy.run) {
            (Told::Run, Run::Frozen) => copy.run = Run::Runs,
            (Told::Run, Run::Quiet) if renewal.latest || honors => {
                (copy.run, copy.quiesce_for, copy.calling) = (Run::Runs, 0, None);
            }
            (Told::Quiesce(transfer), Run::Runs | Run::Frozen | Run::Quiet) => {
                copy.run = Run::Quiet;
                if copy.gave_to != transfer {
                    copy.quiesce_for = transfer;
                }
            }
            (Told::Run | Told::Quiesce(_), _) => {}
        }
    }

    /// A call of the source arrives. An accepted request is remembered and answered from memory; a refused one
    /// is judged anew.
    fn source_called(&self, world: &mut World, calling: Calling) -> Message {
        if calling.accepted {
            return Message::SourceAnswered(calling);
        }
        let before = self.view(world);
        let accepted = self.source_call(world, calling.call).is_some();
        match calling.call {
            Call::Return { .. } if accepted && self.view(world).epoch != before.epoch => {
                self.taken(world, &before, world.source.work);
            }
            Call::Stage { work, .. } | Call::Refresh { work, .. } if accepted => {
                note_stray(world, &before, None);
                world.accepted = world.accepted.max(work);
            }
            Call::Stage { .. }
            | Call::Refresh { .. }
            | Call::Return { .. }
            | Call::Final { .. }
            | Call::Checkpoint { .. } => {}
        }
        Message::SourceAnswered(Calling { accepted, ..calling })
    }

    fn source_call(&self, world: &mut World, call: Call) -> Option<()> {
        match call {
            Call::Stage { epoch, work, is_final } if world.transfers < self.bounds.transfers => {
                let transfer = world.transfers + 1;
                self.ask(world, Ask::Stage { transfer, epoch, work, is_final })?;
                world.transfers = transfer;
                self.ask(world, Ask::Provision { transfer })?;
            }
            Call::Refresh { transfer, epoch, work, is_final } => {
                self.ask(world, Ask::Refresh { transfer, epoch, work, is_final })?;
            }
            Call::Return { epoch } => {
                self.ask(world, Ask::Return { epoch })?;
            }
            Call::Stage { .. } | Call::Final { .. } | Call::Checkpoint { .. } => return None,
        }
        Some(())
    }

    fn source_answered(&self, world: &mut World, calling: Calling) {
        let own = world.source.calling.is_some_and(|open| open.call == calling.call);
        if !own || world.source.run == Run::Off {
            return;
        }
        world.source.calling = None;
        if !calling.accepted {
            return;
        }
        match calling.call {
            Call::Refresh { is_final: false, .. } | Call::Stage { is_final: false, .. } => {
                world.source.run = Run::Runs;
            }
            Call::Return { .. } => {
                world.source.epoch = self.view(world).epoch;
                world.source.run = Run::Runs;
            }
            Call::Refresh { .. } | Call::Stage { .. } | Call::Final { .. } | Call::Checkpoint { .. } => {}
        }
    }

    /// A call of a copy arrives. A checkpoint carries no request id: it says itself what it follows.
    fn copy_called(&self, world: &mut World, number: u8, calling: Calling) -> Option<Message> {
        let before = self.view(world);
        let Copied { node, transfer: own, epoch, .. } = *world.copy(number)?;
        let (ask, work) = match calling.call {
            Call::Final { .. } if calling.accepted => {
                return Some(Message::CopyAnswered { copy: number, calling });
            }
            Call::Final { transfer, work } => {
                (Ask::Final { transfer, node, copy: number, epoch, work }, work)
            }
            Call::Checkpoint { work, follows } => {
                let follows = Some(follows).filter(|_| self.fault != Fault::ForgetsWhatItFollows);
                (Ask::Checkpoint { transfer: own, node, copy: number, epoch, work, follows }, work)
            }
            Call::Stage { .. } | Call::Refresh { .. } | Call::Return { .. } => return None,
        };
        let accepted = self.ask(world, ask).is_some();
        if accepted {
            note_stray(world, &before, Some((number, epoch)));
            world.broken.lost |= self.view(world).last < world.accepted;
            world.accepted = world.accepted.max(work);
        }
        let calling = Calling { accepted, ..calling };
        Some(Message::CopyAnswered { copy: number, calling })
    }
}

fn copy_answered(world: &mut World, number: u8, calling: Calling) {
    let open = |copy: &&mut Copied| copy.calling.is_some_and(|open| open.call == calling.call);
    let Some(copy) = world.copy_mut(number).filter(open) else { return };
    copy.calling = None;
    match calling.call {
        Call::Final { work, .. } | Call::Checkpoint { work, .. } if calling.accepted => copy.known = work,
        Call::Final { .. }
        | Call::Checkpoint { .. }
        | Call::Stage { .. }
        | Call::Refresh { .. }
        | Call::Return { .. } => {}
    }
}

/// A state change was accepted: did it come from who holds the session?
fn note_stray(world: &mut World, before: &View, from: Option<(u8, u8)>) {
    let holds = match (before.holder, from) {
        (Who::Source, None) => true,
        (Who::Copy(holder), Some((number, epoch))) => holder == number && epoch == before.epoch,
        (Who::Source | Who::Copy(_) | Who::Nobody, _) => false,
    };
    world.broken.stray |= !holds;
}

/// One more, unless any number may be.
fn count(happened: &mut u8, most: u8) {
    *happened += u8::from(most != ANY);
}

/// A copy is dead.
fn end(copy: &mut Copied) {
    copy.run = Run::Off;
    copy.leased = false;
    (copy.quiesce_for, copy.gave_to, copy.calling) = (0, 0, None);
}

/// A renewal that was sent before the holder's last final, as it is from then on.
fn before_the_final(message: Message, number: u8) -> Message {
    match message {
        Message::Renew(renewal) if renewal.copy == number => {
            Message::Renew(Renewal { latest: false, ..renewal })
        }
        Message::Renewed(renewal, told) if renewal.copy == number => {
            Message::Renewed(Renewal { latest: false, ..renewal }, told)
        }
        other => other,
    }
}

/// The same message when it arrives for the second time.
fn second(message: Message, answer: Option<Message>) -> Message {
    match (message, answer) {
        (Message::Renew(renewal), _) => Message::Renew(Renewal { spent: true, ..renewal }),
        (Message::OfSource(_), Some(Message::SourceAnswered(calling))) => Message::OfSource(calling),
        (Message::OfCopy { copy, .. }, Some(Message::CopyAnswered { calling, .. })) => {
            Message::OfCopy { copy, calling }
        }
        (message, _) => message,
    }
}
