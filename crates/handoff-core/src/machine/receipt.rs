//! Receipt: the node holds and verified the snapshot. It counts only for the present assignment, the digest
//! that was pushed, and a snapshot that still carries the final mark.

use handoff_protocol::{Digest, NodeId, Status, TransferId};

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::refusal::Refusal;
use crate::state::Generation;
use crate::transfer::Push;

use super::{Case, Decision};

pub(super) fn decide(
    case: &Case<'_>,
    transfer: TransferId,
    (node, generation): (NodeId, Generation),
    digest: Digest,
    missing: &[String],
) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::Receipt, transfer)?;
    super::check_assignment(found, node, generation)?;
    super::check_digest(found, digest)?;
    super::check_final(session, found)?;
    if found.receipt {
        return Ok(Decision::done([]));
    }
    if found.push != Some(Push::Requested { digest }) {
        return Err(Refusal::StaleSnapshot { transfer, present: found.snapshot });
    }
    if !missing.is_empty() {
        return Ok(Decision::done([Fact::PushFailed { transfer, missing: missing.to_vec() }]));
    }
    let again = found.status == Status::Pushed;
    Ok(Decision::done([Fact::Pushed { transfer, generation, digest, again }]))
}

#[cfg(test)]
mod tests {
    use handoff_protocol::{ErrorCode, Status};

    use crate::Command;
    use crate::grid::CommandKind;
    use crate::machine::world::{NODE, ONE, OTHER_NODE, World, digest};
    use crate::state::Generation;

    fn waiting() -> World {
        let mut world = World::provisioned();
        world.give(world.command(CommandKind::Push, ONE));
        world
    }

    #[test]
    fn given_a_recorded_push_when_its_node_verified_then_it_is_pushed() {
        let mut world = waiting();
        world.give(world.command(CommandKind::Receipt, ONE));
        assert_eq!((world.status(ONE), world.of(ONE).receipt), (Status::Pushed, true));
        assert_eq!(world.make(world.command(CommandKind::Receipt, ONE)).0, [], "the same again");
    }

    /// H-39
    #[test]
    fn a_receipt_is_for_the_present_assignment_and_digest() {
        let world = waiting();
        let with = |node, generation, word: &str| {
            let (digest, missing) = (digest(word), Vec::new());
            world.code(&Command::Receipt { transfer: ONE, node, generation, digest, missing })
        };
        assert_eq!(with(OTHER_NODE, Generation(1), "final"), ErrorCode::Forbidden);
        assert_eq!(with(NODE, Generation(2), "final"), ErrorCode::StaleGeneration);
        assert_eq!(with(NODE, Generation(1), "other"), ErrorCode::ChecksumMismatch);
    }

    #[test]
    fn a_receipt_without_a_push_and_one_for_a_void_push_are_refused() {
        let world = World::provisioned();
        assert_eq!(world.code(&world.command(CommandKind::Receipt, ONE)), ErrorCode::StaleSnapshot);
        let mut refreshed = waiting();
        let late = refreshed.command(CommandKind::Receipt, ONE);
        refreshed.give(refreshed.refresh(ONE, "draft", false));
        assert_eq!(refreshed.code(&late), ErrorCode::ChecksumMismatch);
        assert_eq!(refreshed.code(&refreshed.command(CommandKind::Receipt, ONE)), ErrorCode::NotFinal);
        refreshed.give(refreshed.refresh(ONE, "final", true));
        assert_eq!(refreshed.code(&late), ErrorCode::StaleSnapshot, "the push was void");
    }
}
