//! Which steps are possible.

use handoff_protocol::Status;

use super::asks::{Ask, View, Who};
use super::world::{Call, Copied, Message, Run, World};
use super::{Fault, MoveModel, Step, Way, refreshable};

impl MoveModel {
    /// The ways in which a message may travel now.
    fn ways(&self, world: &World, answer_late: bool) -> impl Iterator<Item = Way> + use<> {
        let (room, bounds) = (world.has_room(self.bounds.net), self.bounds);
        let late = room && world.delays < bounds.delays;
        let lost = world.losses < bounds.losses;
        let twice = room && world.duplicates < bounds.duplicates;
        let ways = [
            (Way::Through, true),
            (Way::Late, late),
            (Way::AnswerLate, late && answer_late),
            (Way::AnswerLost, lost),
            (Way::Twice, twice),
        ];
        ways.into_iter().filter(|(_, possible)| *possible).map(|(way, _)| way)
    }

    pub(super) fn source_steps(&self, world: &World, steps: &mut Vec<Step>) {
        let (source, view) = (world.source, self.view(world));
        let works = source.run == Run::Runs;
        if works && source.work < self.bounds.work {
            steps.push(Step::SourceWorks);
        }
        if source.run == Run::Off {
            return;
        }
        if view.holder == Who::Source && world.crashes < self.bounds.crashes {
            steps.push(Step::SourceCrashes);
        }
        if source.calling.is_some() {
            return;
        }
        let not_resumed =
            view.pending.is_some_and(|pending| pending.status == Status::Pushed && !pending.authorized);
        if !works && self.fault == Fault::GoesOnUnasked && not_resumed {
            steps.push(Step::SourceGoesOnUnasked);
        }
        for call in self.calls_of_source(world, &view) {
            steps.extend(self.ways(world, false).map(|way| Step::SourceCalls(call, way)));
        }
    }

    /// What a source may want: to refresh its draft, to stop for the final, to go on, to stage anew, to return.
    fn calls_of_source(&self, world: &World, view: &View) -> Vec<Call> {
        let (source, epoch) = (world.source, view.epoch);
        let (works, work) = (source.run == Run::Runs, source.work);
        let mut calls = Vec::new();
        match view.pending {
            Some(pending) if refreshable(pending.status) => {
                let transfer = pending.transfer;
                let refresh = |is_final| Call::Refresh { transfer, epoch, work, is_final };
                if pending.mark.is_none() || pending.work != work {
                    calls.push(refresh(true));
                }
                if !works || pending.work != work {
                    calls.push(refresh(false));
                }
            }
            Some(_) => {}
            None => {
                if world.transfers < self.bounds.transfers {
                    calls.push(Call::Stage { epoch, work, is_final: !works });
                }
                if !works && view.live.is_none() && epoch < self.bounds.epochs {
                    calls.push(Call::Return { epoch: source.epoch });
                }
            }
        }
        calls
    }

    pub(super) fn command_steps(&self, world: &World, steps: &mut Vec<Step>) {
        let view = self.view(world);
        if let Some(pending) = view.pending {
            let transfer = pending.transfer;
            let command = match pending.status {
                Status::Provisioned if pending.pushed => Some(Ask::Receipt { transfer }),
                Status::Provisioned if pending.mark.is_some() => Some(Ask::Push { transfer }),
                Status::Pushed if pending.authorized => Some(Ask::Withdraw { transfer }),
                Status::Pushed if pending.pushed => Some(Ask::Receipt { transfer }),
                Status::Pushed => Some(Ask::Activate { transfer }),
                _ => None,
            };
            steps.extend(command.map(Step::Command));
            steps.push(Step::Command(Ask::Terminate { transfer }));
            let draft = refreshable(pending.status) && pending.mark.is_none();
            if draft && view.live.is_some() && !pending.asked {
                steps.push(Step::Command(Ask::WantFinal { transfer }));
            }
            if self.bounds.reassigns_pending && pending.generation < 2 && !pending.authorized {
                steps.push(Step::Command(Ask::Reassign { transfer }));
            }
        } else if world.transfers < self.bounds.transfers {
            steps.push(Step::Resume);
        }
        if let Some(live) = view.live {
            steps.push(Step::Command(Ask::Terminate { transfer: live.transfer }));
            if live.resting {
                steps.push(Step::Command(Ask::Wake));
            } else if live.generation < 2 && !view.leased {
                steps.push(Step::Command(Ask::Reassign { transfer: live.transfer }));
            }
        }
        let lost = world.source.run == Run::Off && view.holder == Who::Source;
        let nothing = view.pending.is_none() && view.live.is_none();
        let gives_up = self.fault != Fault::NobodyAbandons;
        if lost && nothing && gives_up && view.epoch < self.bounds.epochs {
            steps.push(Step::Command(Ask::AbandonSource));
        }
        if view.leased && self.lease_may_end(world, &view) {
            steps.push(Step::LeaseEnds);
        }
    }

    /// The holder's own count is over before the control plane's: it began earlier.
    fn lease_may_end(&self, world: &World, view: &View) -> bool {
        let Who::Copy(number) = view.holder else { return true };
        let counts = |copy: &Copied| copy.run != Run::Off && copy.leased;
        !world.copy(number).is_some_and(counts)
    }

    pub(super) fn copy_steps(&self, world: &World, steps: &mut Vec<Step>) {
        let view = self.view(world);
        let more = view.epoch < self.bounds.epochs && world.copies.contains(&None);
        let tries = |transfer, generation| {
            let mut copies = world.numbered();
            copies.any(|(_, copy)| {
                (copy.transfer, copy.generation) == (transfer, generation) && copy.run == Run::Waits
            })
        };
        let claims =
            view.pending.filter(|found| found.authorized && !tries(found.transfer, found.generation));
        if more && claims.is_some() {
            steps.extend(self.ways(world, true).map(|way| Step::Start { again: false, way }));
        }
        // A node may have lost sight of a copy that is alive: only the lease is in its way.
        let retakes = view
            .live
            .filter(|found| !view.leased && !found.resting && !tries(found.transfer, found.generation));
        if more && retakes.is_some() {
            steps.extend(self.ways(world, true).map(|way| Step::Start { again: true, way }));
        }
        for (number, copy) in world.numbered() {
            self.steps_of(world, &view, (number, copy), steps);
        }
    }

    fn steps_of(&self, world: &World, view: &View, (number, copy): (u8, &Copied), steps: &mut Vec<Step>) {
        let holds = view.holder == Who::Copy(number);
        if copy.run == Run::Off {
            if holds && !view.holder_gone {
                steps.push(Step::CopyProvedAbsent(number));
            }
            return;
        }
        if holds && world.crashes < self.bounds.crashes {
            steps.push(Step::CopyCrashes(number));
        }
        if copy.leased {
            steps.push(Step::CopyLeaseEnds(number));
        }
        if copy.run == Run::Waits {
            return;
        }
        if copy.run == Run::Runs && copy.work < self.bounds.work {
            steps.push(Step::CopyWorks(number));
        }
        // A later renewal may overtake an earlier one, and only one request of a copy is late at a time.
        let asked =
            world.under_way(|message| matches!(message, Message::Renew(renewal) if renewal.copy == number));
        let way = |way: &Way| !asked || matches!(way, Way::Through | Way::AnswerLate);
        steps.extend(self.ways(world, true).filter(way).map(|way| Step::Renew(number, way)));
        if copy.calling.is_some() {
            return;
        }
        let still = matches!(copy.run, Run::Runs | Run::Quiet) && copy.work == copy.known;
        if self.bounds.rests && holds && still && view.live.is_some() {
            steps.push(Step::CopyRests { copy: number, answered: true });
            if world.losses < self.bounds.losses {
                steps.push(Step::CopyRests { copy: number, answered: false });
            }
        }
        let work = copy.work;
        let call = if copy.run == Run::Quiet && copy.quiesce_for > 0 {
            Some(Call::Final { transfer: copy.quiesce_for, work })
        } else if work != copy.known {
            Some(Call::Checkpoint { work, follows: copy.known })
        } else {
            None
        };
        if let Some(call) = call {
            steps.extend(self.ways(world, false).map(|way| Step::CopyCalls(number, call, way)));
        }
    }

    pub(super) fn network_steps(&self, world: &World, steps: &mut Vec<Step>) {
        for (place, message) in (0u8..).zip(world.net.iter().flatten()) {
            steps.push(Step::Deliver(place, Way::Through));
            let renewal_or_claim = matches!(message, Message::Claim { .. } | Message::Renew(_));
            if renewal_or_claim && world.delays < self.bounds.delays {
                steps.push(Step::Deliver(place, Way::AnswerLate));
            }
            if world.losses < self.bounds.losses {
                steps.push(Step::Lose(place));
            }
        }
        let of_source = |message| matches!(message, Message::OfSource(_));
        if world.source.calling.is_some() && world.source.run != Run::Off && !world.under_way(of_source) {
            steps.push(Step::SourceAsksAgain);
        }
        for (number, copy) in world.numbered() {
            let claim = |message| matches!(message, Message::Claim { copy } | Message::Claimed { copy, .. } if copy == number);
            let call = |message| matches!(message, Message::OfCopy { copy, .. } if copy == number);
            let waits = copy.run == Run::Waits && !world.under_way(claim);
            let calls = copy.calling.is_some() && copy.run != Run::Off && !world.under_way(call);
            if waits || calls {
                steps.push(Step::CopyAsksAgain(number));
            }
        }
    }
}
