//! Who may run, and when somebody else may.
//!
//! A lease is counted twice: at the control plane in the store's time, from the moment a claim or renewal is
//! accepted; at the holder from the moment it first sent that claim or renewal, which is earlier. The holder
//! freezes at two thirds. So the holder has stopped before the control plane believes that it has.

use handoff_protocol::Timestamp;

use crate::policy::{Policy, Rule};
use crate::state::{Holder, Session};
use crate::transfer::{Ground, Transfer};

/// Whether the last incarnation's lease is over.
pub fn is_over(session: &Session, now: Timestamp) -> bool {
    session.holder_gone || session.lease_until.is_none_or(|until| until <= now)
}

/// Whether whoever holds the session cannot run any more, so that `transfer` may be claimed: its lease is over,
/// or it is proved gone, or it stopped for this very transfer in the present epoch. A source has no lease; only
/// its own final mark stops it.
pub fn former_holder_is_out(policy: &Policy, session: &Session, transfer: &Transfer, now: Timestamp) -> bool {
    let quiesced =
        transfer.mark.is_some_and(|mark| mark.epoch == session.epoch && mark.ground == Ground::Quiesced);
    match session.holder {
        Holder::None => true,
        Holder::Source { .. } => transfer.is_final(session.epoch),
        Holder::Incarnation { .. } => {
            quiesced || is_over(session, now) || !policy.rules.keep(Rule::ClaimWaitsForLease)
        }
    }
}
