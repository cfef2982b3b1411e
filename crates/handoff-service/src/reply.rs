//! The machine's answer, as the use-case that gave the command expects it.

use handoff_core::{Epoch, Reply};
use handoff_protocol::node::{LeaseCommand, UsageAnswer};
use handoff_protocol::{AuthorizationId, NanoUsd, TransferId};

use crate::error::ServiceError;

fn unexpected(reply: &Reply) -> ServiceError {
    ServiceError::Internal(format!("the answer {reply:?} does not fit its command"))
}

pub(crate) fn staged(reply: &Reply) -> Result<TransferId, ServiceError> {
    if let Reply::Staged { transfer } = reply { Ok(*transfer) } else { Err(unexpected(reply)) }
}

pub(crate) fn authorized(reply: &Reply) -> Result<AuthorizationId, ServiceError> {
    if let Reply::Authorized { authorization } = reply { Ok(*authorization) } else { Err(unexpected(reply)) }
}

pub(crate) fn claimed(reply: &Reply) -> Result<(Epoch, NanoUsd), ServiceError> {
    if let Reply::Claimed { epoch, limit } = reply { Ok((*epoch, *limit)) } else { Err(unexpected(reply)) }
}

pub(crate) fn renewed(reply: &Reply) -> Result<(LeaseCommand, Option<TransferId>), ServiceError> {
    if let Reply::Renewed { command, for_transfer } = reply {
        Ok((*command, *for_transfer))
    } else {
        Err(unexpected(reply))
    }
}

pub(crate) fn usage(reply: &Reply) -> Result<UsageAnswer, ServiceError> {
    if let Reply::Usage { accepted_seq, limit, command } = reply {
        Ok(UsageAnswer { accepted_seq: *accepted_seq, limit_usd: *limit, command: *command })
    } else {
        Err(unexpected(reply))
    }
}

pub(crate) fn returned(reply: &Reply) -> Result<Epoch, ServiceError> {
    if let Reply::Returned { epoch } = reply { Ok(*epoch) } else { Err(unexpected(reply)) }
}
