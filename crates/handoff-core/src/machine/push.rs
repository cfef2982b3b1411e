//! Push: records that the destination is to verify and restore the snapshot. Its receipt completes it. A pushed
//! transfer is pushed again where the node that it was assigned to anew could not sign for it.

use handoff_protocol::{Digest, TransferId};

use crate::fact::Fact;
use crate::grid::CommandKind;
use crate::refusal::Refusal;
use crate::transfer::Push;

use super::{Case, Decision};

pub(super) fn decide(
    case: &Case<'_>,
    transfer: TransferId,
    checksum: Option<Digest>,
) -> Result<Decision, Refusal> {
    let (session, found) = case.legal(CommandKind::Push, transfer)?;
    if let Some(named) = checksum {
        super::check_digest(found, named)?;
    }
    super::check_final(session, found)?;
    let digest = found.snapshot;
    if found.receipt || found.push == Some(Push::Requested { digest }) {
        return Ok(Decision::done([]));
    }
    Ok(Decision::done([Fact::PushRequested { transfer, digest }]))
}

#[cfg(test)]
mod tests {
    use handoff_protocol::ErrorCode;

    use crate::Command;
    use crate::grid::CommandKind;
    use crate::machine::world::{MINUTE, ONE, World, digest};
    use crate::transfer::Push;

    #[test]
    fn a_push_is_recorded_once_for_the_digest_it_is_about() {
        let mut world = World::provisioned();
        world.give(Command::Push { transfer: ONE, checksum: None });
        assert_eq!(world.of(ONE).push, Some(Push::Requested { digest: digest("final") }));
        assert_eq!(world.make(world.command(CommandKind::Push, ONE)).0, []);
    }

    /// H-39
    #[test]
    fn another_checksum_and_a_draft_are_refused() {
        let world = World::provisioned();
        let push = Command::Push { transfer: ONE, checksum: Some(digest("else")) };
        assert_eq!(world.code(&push), ErrorCode::ChecksumMismatch);
        let mut draft = World::staged();
        draft.give(draft.command(CommandKind::Provision, ONE));
        assert_eq!(draft.code(&draft.command(CommandKind::Push, ONE)), ErrorCode::NotFinal);
    }

    /// H-46, H-70: the new node of a pushed transfer may lack what the old one had.
    #[test]
    fn a_pushed_transfer_without_a_receipt_is_pushed_again() {
        let mut world = World::pushed();
        assert_eq!(world.make(world.command(CommandKind::Push, ONE)).0, [], "its node has signed");
        world = world.silent(2 * MINUTE);
        world.give(world.command(CommandKind::Reassign, ONE));
        let Command::Receipt { transfer, node, generation, digest, .. } =
            world.command(CommandKind::Receipt, ONE)
        else {
            unreachable!("it is a receipt")
        };
        let missing = vec!["env://keys/MODEL".to_owned()];
        world.give(Command::Receipt { transfer, node, generation, digest, missing });
        assert_eq!(world.code(&world.command(CommandKind::Activate, ONE)), ErrorCode::WrongStatus);
        assert_eq!(world.code(&world.command(CommandKind::Receipt, ONE)), ErrorCode::StaleSnapshot);
        world.give(world.command(CommandKind::Push, ONE));
        world.give(world.command(CommandKind::Receipt, ONE));
        world.give(world.command(CommandKind::Activate, ONE));
    }

    #[test]
    fn a_push_that_failed_can_be_asked_for_again() {
        let mut world = World::provisioned();
        world.give(world.command(CommandKind::Push, ONE));
        let Command::Receipt { transfer, node, generation, digest, .. } =
            world.command(CommandKind::Receipt, ONE)
        else {
            unreachable!("it is a receipt")
        };
        let missing = vec!["env://keys/MODEL".to_owned()];
        world.give(Command::Receipt { transfer, node, generation, digest, missing: missing.clone() });
        assert_eq!(world.of(ONE).push, Some(Push::Failed { missing }));
        world.give(world.command(CommandKind::Push, ONE));
        world.give(world.command(CommandKind::Receipt, ONE));
    }
}
