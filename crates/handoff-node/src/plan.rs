//! What to do next for one destination: a pure function of what is wanted and what is there. Every step leads
//! towards the wanted state and can be repeated after any crash.

use handoff_protocol::node::{Destination, Want};
use handoff_protocol::{AuthorizationId, Digest, IncarnationId};

/// What is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actual {
    /// The snapshot whose blobs are all here.
    pub fetched: Option<Digest>,
    /// The snapshot that stands restored.
    pub restored: Option<Digest>,
    /// The snapshot that the gateway serves this destination for.
    pub door_open: bool,
    /// The sandbox.
    pub sandbox: Sandbox,
    /// The snapshot that a receipt was accepted for.
    pub receipted: Option<Digest>,
    /// The authorisation that was tried last and came to nothing.
    pub spent_authorization: Option<AuthorizationId>,
    /// Who holds the session here, by the last accepted claim.
    pub holder: Option<IncarnationId>,
    /// Whether the agent stands still because the budget is used up.
    pub frozen: bool,
    /// Whether a checkpoint was accepted since it stands still.
    pub checkpointed: bool,
    /// Whether everything is proved gone.
    pub removed: bool,
}

/// The sandbox as it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// Proved absent.
    None,
    /// Its agent runs or waits for `go`.
    Alive,
    /// Its agent or init ended; something may be left.
    Dead,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Bring the blobs here.
    Fetch,
    /// Unpack them, verified, in place of what stands there.
    Restore,
    /// Have the gateway open this destination's door.
    OpenDoor,
    /// Start the sandbox; its agent loads and waits.
    Start,
    /// End the sandbox and prove it.
    Clear,
    /// Sign for the snapshot.
    SendReceipt,
    /// Take the session by this authorisation.
    Claim(AuthorizationId),
    /// Take it again.
    Reclaim,
    /// Save what the dead holder left, close its epoch, prove it gone.
    Recover,
    /// Stand still.
    Freeze,
    /// Store a snapshot.
    Checkpoint,
    /// Go on.
    Thaw,
    /// Another incarnation holds the session: end at once.
    Yield,
    /// Leave nothing, and prove it.
    Remove,
    /// Hold the lease and wait for news.
    Hold,
    /// Wait for news.
    Wait,
}

/// The next step.
pub fn next(wanted: &Destination, actual: &Actual) -> Step {
    if replaced(wanted, actual) {
        return Step::Yield;
    }
    match wanted.want {
        Want::Gone if actual.removed => Step::Wait,
        Want::Gone => Step::Remove,
        // A list that was made before the claim still says warm or prepared.
        Want::Warm | Want::Prepared if actual.holder.is_some() => match actual.sandbox {
            Sandbox::Alive => Step::Hold,
            Sandbox::Dead | Sandbox::None => Step::Recover,
        },
        Want::Warm if actual.fetched != Some(wanted.snapshot) => Step::Fetch,
        Want::Warm => Step::Wait,
        Want::Prepared => prepare(wanted, actual).unwrap_or_else(|| offer(wanted, actual)),
        Want::Running => run(wanted, actual),
        Want::Frozen => freeze(actual),
        // It said so itself when its epoch was closed: all that is left is to end.
        Want::Resting if actual.holder.is_some() => Step::Yield,
        Want::Resting => clear(actual).unwrap_or(Step::Wait),
    }
}

/// The control plane names another holder in this very transfer.
fn replaced(wanted: &Destination, actual: &Actual) -> bool {
    let live = matches!(wanted.want, Want::Running | Want::Frozen | Want::Resting);
    let named = wanted.holder.filter(|_| live);
    named.zip(actual.holder).is_some_and(|(named, own)| named != own)
}

/// What is missing until an agent stands loaded with the wanted snapshot.
fn prepare(wanted: &Destination, actual: &Actual) -> Option<Step> {
    let right = actual.restored == Some(wanted.snapshot);
    match actual.sandbox {
        Sandbox::Dead => Some(Step::Clear),
        Sandbox::Alive if !right => Some(Step::Clear),
        Sandbox::Alive => None,
        Sandbox::None if right && actual.door_open => Some(Step::Start),
        Sandbox::None if right => Some(Step::OpenDoor),
        Sandbox::None if actual.fetched == Some(wanted.snapshot) => Some(Step::Restore),
        Sandbox::None => Some(Step::Fetch),
    }
}

fn offer(wanted: &Destination, actual: &Actual) -> Step {
    if wanted.push && actual.receipted != Some(wanted.snapshot) {
        return Step::SendReceipt;
    }
    match wanted.authorization {
        Some(offer) if actual.spent_authorization != Some(offer.id) => Step::Claim(offer.id),
        Some(_) | None => Step::Wait,
    }
}

fn run(wanted: &Destination, actual: &Actual) -> Step {
    match (actual.holder, actual.sandbox) {
        (Some(_), Sandbox::Alive) if actual.frozen => Step::Thaw,
        (Some(_), Sandbox::Alive) => Step::Hold,
        (Some(_), Sandbox::Dead | Sandbox::None) => Step::Recover,
        // Nothing is unpacked over a former holder that may still run.
        (None, _) if !wanted.lease_over => clear(actual).unwrap_or(Step::Wait),
        (None, _) => prepare(wanted, actual).unwrap_or(Step::Reclaim),
    }
}

fn freeze(actual: &Actual) -> Step {
    match (actual.holder, actual.sandbox) {
        (Some(_), Sandbox::Alive) if !actual.frozen => Step::Freeze,
        (Some(_), Sandbox::Alive) if !actual.checkpointed => Step::Checkpoint,
        (Some(_), Sandbox::Alive) => Step::Hold,
        (Some(_), Sandbox::Dead | Sandbox::None) => Step::Recover,
        // The last accepted checkpoint is the final one; nothing has to run for it.
        (None, _) => clear(actual).unwrap_or(Step::Wait),
    }
}

fn clear(actual: &Actual) -> Option<Step> {
    match actual.sandbox {
        Sandbox::None => None,
        Sandbox::Alive | Sandbox::Dead => Some(Step::Clear),
    }
}

#[cfg(test)]
mod tests {
    use handoff_protocol::node::AuthorizationOffer;
    use handoff_protocol::{NanoUsd, SessionId, Tier, TransferId};

    use super::*;

    fn wanted(want: Want) -> Destination {
        Destination {
            transfer_id: TransferId::from_u128(1),
            session_id: SessionId::from_u128(2),
            generation: 1,
            version: 1,
            want,
            authorization: None,
            snapshot: Digest::of(b"snapshot"),
            push: false,
            tier: Tier::defaults()[0].clone(),
            epoch: None,
            holder: None,
            lease_over: false,
            tick_ms: 10_000,
            grace_ms: 60_000,
            wind_down_usd: NanoUsd::ZERO,
        }
    }

    fn nothing() -> Actual {
        Actual {
            fetched: None,
            restored: None,
            door_open: false,
            sandbox: Sandbox::None,
            receipted: None,
            spent_authorization: None,
            holder: None,
            frozen: false,
            checkpointed: false,
            removed: false,
        }
    }

    fn loaded() -> Actual {
        let snapshot = Some(Digest::of(b"snapshot"));
        Actual {
            fetched: snapshot,
            restored: snapshot,
            door_open: true,
            sandbox: Sandbox::Alive,
            ..nothing()
        }
    }

    fn running() -> Actual {
        Actual { holder: Some(IncarnationId::from_u128(9)), ..loaded() }
    }

    /// H-49, H-51
    #[test]
    fn an_empty_place_walks_to_a_receipt() {
        let mut wanted = wanted(Want::Prepared);
        wanted.push = true;
        let snapshot = Some(wanted.snapshot);
        let mut actual = nothing();
        let mut walk = Vec::new();
        for _ in 0..6 {
            let step = next(&wanted, &actual);
            walk.push(step);
            match step {
                Step::Fetch => actual.fetched = snapshot,
                Step::Restore => actual.restored = snapshot,
                Step::OpenDoor => actual.door_open = true,
                Step::Start => actual.sandbox = Sandbox::Alive,
                Step::SendReceipt => actual.receipted = snapshot,
                _ => {}
            }
        }
        let expected =
            [Step::Fetch, Step::Restore, Step::OpenDoor, Step::Start, Step::SendReceipt, Step::Wait];
        assert_eq!(walk, expected);
    }

    #[test]
    fn an_authorisation_is_tried_once() {
        let mut wanted = wanted(Want::Prepared);
        let id = AuthorizationId::from_u128(4);
        wanted.authorization = Some(AuthorizationOffer { id, deadline_ms: 1 });
        assert_eq!(next(&wanted, &loaded()), Step::Claim(id));
        let tried = Actual { spent_authorization: Some(id), ..loaded() };
        assert_eq!(next(&wanted, &tried), Step::Wait);
    }

    #[test]
    fn a_list_from_before_the_claim_does_not_disturb_the_holder() {
        for want in [Want::Warm, Want::Prepared, Want::Running] {
            assert_eq!(next(&wanted(want), &running()), Step::Hold, "{want:?}");
        }
    }

    #[test]
    fn a_refreshed_snapshot_replaces_what_stands_there() {
        let other = Actual { restored: Some(Digest::of(b"older")), ..loaded() };
        assert_eq!(next(&wanted(Want::Prepared), &other), Step::Clear);
        let cleared = Actual { sandbox: Sandbox::None, ..other };
        assert_eq!(next(&wanted(Want::Prepared), &cleared), Step::Restore);
    }

    #[test]
    fn a_dead_holder_is_recovered_and_then_claimed_again() {
        let mut wanted = wanted(Want::Running);
        let dead = Actual { sandbox: Sandbox::Dead, ..running() };
        assert_eq!(next(&wanted, &dead), Step::Recover);
        let recovered = Actual { holder: None, sandbox: Sandbox::None, ..dead };
        assert_eq!(next(&wanted, &recovered), Step::Wait, "the lease is not over");
        wanted.lease_over = true;
        assert_eq!(next(&wanted, &recovered), Step::Start);
        assert_eq!(next(&wanted, &loaded()), Step::Reclaim);
    }

    #[test]
    fn another_holder_ends_this_one() {
        let mut wanted = wanted(Want::Running);
        wanted.holder = Some(IncarnationId::from_u128(10));
        assert_eq!(next(&wanted, &running()), Step::Yield);
        wanted.holder = Some(IncarnationId::from_u128(9));
        assert_eq!(next(&wanted, &running()), Step::Hold);
    }

    #[test]
    fn insolvency_freezes_then_checkpoints_and_a_raise_thaws() {
        let frozen = Actual { frozen: true, ..running() };
        let stored = Actual { checkpointed: true, ..frozen.clone() };
        assert_eq!(next(&wanted(Want::Frozen), &running()), Step::Freeze);
        assert_eq!(next(&wanted(Want::Frozen), &frozen), Step::Checkpoint);
        assert_eq!(next(&wanted(Want::Frozen), &stored), Step::Hold);
        assert_eq!(next(&wanted(Want::Running), &stored), Step::Thaw);
    }

    /// H-49
    #[test]
    fn gone_means_removed_whatever_is_there() {
        for actual in [nothing(), loaded(), running(), Actual { sandbox: Sandbox::Dead, ..running() }] {
            assert_eq!(next(&wanted(Want::Gone), &actual), Step::Remove);
            let removed = Actual { removed: true, ..actual };
            assert_eq!(next(&wanted(Want::Gone), &removed), Step::Wait);
        }
    }
}
