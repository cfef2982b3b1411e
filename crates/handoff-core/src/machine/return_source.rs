//! Return: a frozen source takes its session back. It is a claim: it raises the epoch, and the same nonce gets
//! the same answer. Once a transfer was active, even for a moment, the way back is a new transfer.

use handoff_protocol::{IncarnationId, SessionId};

use crate::fact::Fact;
use crate::policy::Rule;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::state::{Epoch, Holder};

use super::{Case, Decision};

pub(super) fn decide(
    case: &Case<'_>,
    session: SessionId,
    principal: &str,
    nonce: IncarnationId,
    frozen_epoch: Epoch,
) -> Result<Decision, Refusal> {
    let session = case.session(session)?;
    if let Some(last) = session.last_return.filter(|last| last.nonce == nonce && last.epoch == session.epoch)
    {
        return Ok(Decision::new([], Reply::Returned { epoch: last.epoch }));
    }
    let busy = |why| Refusal::busy(session, why);
    if session.pending.is_some() {
        return Err(busy("it has a pending transfer: terminate it first"));
    }
    if session.live.is_some() {
        return Err(busy("it runs elsewhere: stage a new transfer back"));
    }
    if case.keeps(Rule::ReturnOnlyByHolder) {
        match &session.holder {
            Holder::Source { principal: holder } if holder == principal => {}
            Holder::Source { .. } => return Err(Refusal::WrongSource { session: session.id }),
            Holder::Incarnation { .. } | Holder::None => {
                return Err(busy("the source has not held it since: resume it from its last snapshot"));
            }
        }
        super::check_epoch(case, session, frozen_epoch)?;
    }
    let epoch = session.epoch.next();
    Ok(Decision::new(
        [Fact::Returned { nonce, epoch, principal: principal.to_owned() }],
        Reply::Returned { epoch },
    ))
}

#[cfg(test)]
mod tests {
    use handoff_protocol::ErrorCode;

    use crate::grid::CommandKind;
    use crate::machine::world::{MINUTE, ONE, SOURCE, TWO, World};
    use crate::state::{Epoch, Holder};
    use crate::{Command, Reply};

    #[test]
    fn given_nothing_was_claimed_then_the_frozen_source_takes_its_session_back() {
        let mut world = World::expired();
        let reply = world.give(world.give_back(7));
        assert_eq!(reply, Reply::Returned { epoch: Epoch(2) });
        assert_eq!(world.session().holder, Holder::Source { principal: SOURCE.to_owned() });
        assert_eq!(world.code(&world.resume(TWO)), ErrorCode::SessionBusy, "its old final is no final now");
        world.give(world.stage(TWO, "more", false));
    }

    /// H-59
    #[test]
    fn the_same_nonce_gets_the_same_answer_and_another_one_is_too_late() {
        let mut world = World::expired();
        let (first, other) = (world.give_back(7), world.give_back(8));
        let reply = world.give(first.clone());
        assert_eq!(world.make(first.clone()), (Vec::new(), reply));
        assert_eq!(world.code(&other), ErrorCode::StaleEpoch);
        world.give(world.stage(TWO, "again", true));
        assert_eq!(world.make(first).0, [], "it still holds it");
    }

    /// H-60
    #[test]
    fn none_once_a_transfer_was_active_even_for_a_moment() {
        let mut world = World::authorized();
        let give_back = world.give_back(7);
        assert_eq!(world.code(&give_back), ErrorCode::SessionBusy, "it is pending");
        world.give(world.command(CommandKind::Claim, ONE));
        assert_eq!(world.code(&give_back), ErrorCode::SessionBusy, "it runs elsewhere");
        world.give(world.command(CommandKind::Terminate, ONE));
        world = world.later(MINUTE);
        assert_eq!(world.code(&give_back), ErrorCode::SessionBusy);
        assert_eq!(world.code(&world.give_back(8)), ErrorCode::SessionBusy);
    }

    #[test]
    fn only_the_source_that_holds_it_returns() {
        let world = World::expired();
        let Command::Return { session, nonce, frozen_epoch, .. } = world.give_back(7) else {
            unreachable!("it returns")
        };
        let principal = "stranger".to_owned();
        let command = Command::Return { session, principal, nonce, frozen_epoch };
        assert_eq!(world.code(&command), ErrorCode::Forbidden);
        assert_eq!(world.code(&world.command(CommandKind::Wake, ONE)), ErrorCode::SessionBusy);
    }
}
