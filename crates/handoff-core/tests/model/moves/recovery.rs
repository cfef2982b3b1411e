//! From wherever a move has got to, somebody can run again: shown by doing it, with nothing but commands that a
//! person or a node could give, and time.

use super::asks::{Ask, View, Who};
use super::world::{Run, World};
use super::{Fault, MoveModel};

impl MoveModel {
    /// Whether the session can run again: somebody runs, or a frozen source returns, or an operator ends what is
    /// in the way and resumes it from its last accepted snapshot.
    pub(super) fn can_run_again(&self, world: &World) -> bool {
        world.running() > 0 || self.returns(world) || self.resumes(world)
    }

    fn view_of(&self, core: u32) -> View {
        self.plane.view(core)
    }

    /// Gives a command, if it is accepted.
    fn give(&self, core: u32, ask: Ask) -> Option<u32> {
        let answer = self.plane.ask(core, ask);
        answer.said.ok().map(|_| answer.core)
    }

    /// What is pending or live, ended; and every lease over.
    fn cleared(&self, mut core: u32) -> Option<u32> {
        let view = self.view_of(core);
        let pending = view.pending.map(|found| found.transfer);
        let live = view.live.map(|found| found.transfer);
        for transfer in pending.into_iter().chain(live) {
            core = self.give(core, Ask::Terminate { transfer })?;
        }
        self.give(core, Ask::LeaseEnds)
    }

    /// The source is alive and stands still: it asks, with the nonce it made when it froze.
    fn returns(&self, world: &World) -> bool {
        let frozen = world.source.run == Run::Quiet;
        let back = |core| self.give(core, Ask::Return { epoch: world.source.epoch });
        frozen && self.cleared(world.core).and_then(back).is_some()
    }

    /// An operator resumes it; a source that holds it and is lost is given up first.
    fn resumes(&self, world: &World) -> bool {
        let transfer = 9;
        let run = |core: u32| {
            let view = self.view_of(core);
            let lost = view.holder == Who::Source && !view.own_final;
            let core = match lost {
                true if self.fault == Fault::NobodyAbandons => return None,
                true => self.give(core, Ask::AbandonSource)?,
                false => core,
            };
            let mut core = self.give(core, Ask::Resume { transfer })?;
            for ask in [
                Ask::Provision { transfer },
                Ask::Push { transfer },
                Ask::Receipt { transfer },
                Ask::Activate { transfer },
            ] {
                core = self.give(core, ask)?;
            }
            let pending = self.view_of(core).pending?;
            let (node, generation, work) = (pending.node, pending.generation, pending.work);
            self.give(core, Ask::Claim { transfer, node, generation, copy: 9, work, open: true })
        };
        let alive = world.source.run != Run::Off;
        let core = self.cleared(world.core);
        let held = core.is_some_and(|core| {
            let view = self.view_of(core);
            view.holder == Who::Source && !view.own_final && alive
        });
        // A source that lives and holds the session returns instead; it is not given up behind its back.
        !held && core.and_then(run).is_some()
    }
}
