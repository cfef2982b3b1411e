//! The node wire: what nodes report and ask for. The list of what they should hold is in [`crate::desired`].

use handoff_core::command::{Claim, Reclaim};
use handoff_core::ledger::{LedgerError, NodeRecord};
use handoff_core::{Command, Epoch, Generation, Role};
use handoff_protocol::node::{self, Accepted, BudgetLimit, Claimed, Registered, Renewed, UsageAnswer};
use handoff_protocol::{Digest, NodeId, ProjectId, TransferId};

use crate::access::Principal;
use crate::asked::{self, Call};
use crate::error::ServiceError;
use crate::service::Service;
use crate::{receipt, reply, words};

const ACCEPTED: Accepted = Accepted { accepted: true };
/// What each limit is enforced by: entries that a node may send.
const ISOLATION_ENTRIES: usize = 64;

impl Service {
    /// A node says who it is and what it offers.
    ///
    /// # Errors
    /// Where its key is none, or its id is known with another one.
    pub async fn register(
        &self,
        principal: &Principal,
        body: node::Register,
    ) -> Result<Registered, ServiceError> {
        self.speaks_for(principal, body.node_id).await?;
        words::check_some("name", &body.name)?;
        words::check("version", &body.version)?;
        if body.isolation.len() > ISOLATION_ENTRIES {
            let why = format!("at most {ISOLATION_ENTRIES} entries are kept");
            return Err(ServiceError::InvalidArgument { field: "isolation", why });
        }
        for (limit, by) in &body.isolation {
            words::check_some("isolation", limit)?;
            words::check("isolation", by)?;
        }
        let record = NodeRecord {
            id: body.node_id,
            project: principal.project,
            name: body.name,
            public_key: receipt::public_key(&body.public_key)?,
            capacity: body.capacity,
            isolation: body.isolation,
            seen_at: self.inner.ledger.now().await?,
        };
        match self.inner.ledger.register_node(record).await {
            Err(LedgerError::RequestConflict) => {
                return Err(ServiceError::NodeKeyConflict { node: body.node_id });
            }
            done => done?,
        }
        let policy = &self.config().policy;
        Ok(Registered { lease_ms: policy.lease_ms, renew_ms: policy.renew_ms })
    }

    /// Refuses everybody but this node.
    pub(crate) async fn speaks_for(&self, principal: &Principal, node: NodeId) -> Result<(), ServiceError> {
        self.permit_roles(principal, &[Role::Node], "speak as a node").await?;
        if principal.node() == Some(node) {
            return Ok(());
        }
        Err(self.denied(principal, "speak as another node").await)
    }

    async fn node_of(&self, call: &Call) -> Result<NodeId, ServiceError> {
        self.permit_roles(&call.principal, &[Role::Node], "speak as a node").await?;
        match call.principal.node() {
            Some(node) => Ok(node),
            None => Err(self.denied(&call.principal, "speak as a node without a name").await),
        }
    }

    /// The node holds and verified a snapshot. The signature is checked before the command is given.
    ///
    /// # Errors
    /// `signature_refused`, and what the machine refuses.
    pub async fn receipt(
        &self,
        call: &Call,
        transfer: TransferId,
        body: node::Receipt,
    ) -> Result<Accepted, ServiceError> {
        self.speaks_for(&call.principal, body.node_id).await?;
        let key = self.key_of(call.principal.project, body.node_id).await?;
        if !receipt::is_signed(&key, transfer, &body) {
            return Err(ServiceError::SignatureRefused { node: body.node_id });
        }
        for reference in &body.missing_references {
            words::check("missing_references", reference)?;
        }
        let request = asked::request(Some(&body.request_id), &transfer.to_string(), &body);
        let command = Command::Receipt {
            transfer,
            node: body.node_id,
            generation: Generation(body.generation),
            digest: body.digest,
            missing: body.missing_references,
        };
        self.give(call, Some(request), command).await?;
        Ok(ACCEPTED)
    }

    async fn key_of(&self, project: ProjectId, node: NodeId) -> Result<[u8; 32], ServiceError> {
        let nodes = self.inner.ledger.nodes(project).await?;
        let found = nodes.into_iter().find(|record| record.id == node);
        found
            .map(|record| record.public_key)
            .ok_or_else(|| ServiceError::NotFound { what: format!("node {node}") })
    }

    /// A destination that is ready takes the session: a claim with an authorisation, a re-claim without.
    ///
    /// # Errors
    /// What the machine refuses.
    pub async fn claim(
        &self,
        call: &Call,
        transfer: TransferId,
        body: node::Claim,
    ) -> Result<Claimed, ServiceError> {
        let node = self.node_of(call).await?;
        let (generation, incarnation, digest) = (Generation(body.generation), body.incarnation, body.digest);
        let command = match body.authorization {
            Some(authorization) => {
                Command::Claim(Claim { transfer, node, generation, authorization, incarnation, digest })
            }
            None => Command::Reclaim(Reclaim { transfer, node, generation, incarnation, digest }),
        };
        let applied = self.give(call, None, command).await?;
        let (epoch, limit_usd) = reply::claimed(&applied.reply)?;
        let policy = &self.config().policy;
        Ok(Claimed {
            epoch: epoch.0,
            lease_ms: policy.lease_ms,
            renew_ms: policy.renew_ms,
            budget: BudgetLimit { limit_usd },
        })
    }

    /// A destination cannot use an authorisation.
    ///
    /// # Errors
    /// What the machine refuses.
    pub async fn decline(
        &self,
        call: &Call,
        transfer: TransferId,
        body: node::Decline,
    ) -> Result<Accepted, ServiceError> {
        let node = self.node_of(call).await?;
        words::check("reason", &body.reason)?;
        let command = Command::Decline {
            transfer,
            node,
            generation: Generation(body.generation),
            authorization: body.authorization,
            reason: body.reason,
        };
        self.give(call, None, command).await?;
        Ok(ACCEPTED)
    }

    /// The holder asks to go on.
    ///
    /// # Errors
    /// What the machine refuses.
    pub async fn renew(
        &self,
        call: &Call,
        transfer: TransferId,
        body: node::Renew,
    ) -> Result<Renewed, ServiceError> {
        let command = Command::Renew {
            transfer,
            node: self.node_of(call).await?,
            epoch: Epoch(body.epoch),
            generation: Generation(body.generation),
            incarnation: body.incarnation,
        };
        let applied = self.give(call, None, command).await?;
        let (command, for_transfer) = reply::renewed(&applied.reply)?;
        Ok(Renewed { lease_ms: self.config().policy.lease_ms, command, for_transfer })
    }

    /// The holder goes to rest.
    ///
    /// # Errors
    /// What the machine refuses.
    pub async fn rest(
        &self,
        call: &Call,
        transfer: TransferId,
        body: node::Rest,
    ) -> Result<Accepted, ServiceError> {
        let command = Command::Rest { transfer, node: self.node_of(call).await?, epoch: Epoch(body.epoch) };
        self.give(call, None, command).await?;
        Ok(ACCEPTED)
    }

    /// A cumulative report of one epoch.
    ///
    /// # Errors
    /// What the machine refuses.
    pub async fn usage(
        &self,
        call: &Call,
        transfer: TransferId,
        body: node::Usage,
    ) -> Result<UsageAnswer, ServiceError> {
        let node = self.node_of(call).await?;
        let command = Command::ReportUsage { transfer, node, usage: body, body: report_digest(&body) };
        let applied = self.give(call, None, command).await?;
        reply::usage(&applied.reply)
    }

    /// What a node finds.
    ///
    /// # Errors
    /// What the machine refuses.
    pub async fn observed(
        &self,
        call: &Call,
        transfer: TransferId,
        body: node::Observed,
    ) -> Result<Accepted, ServiceError> {
        let node = self.node_of(call).await?;
        let reason = body.reason.unwrap_or_default();
        words::check("reason", &reason)?;
        if !reason.is_empty() {
            tracing::info!(%transfer, %node, state = ?body.state, reason, "a node reports");
        }
        let command = Command::Observe {
            transfer,
            node,
            generation: Generation(body.generation),
            state: body.state,
            last_alive: body.last_alive_at,
            incarnation: body.incarnation,
        };
        self.give(call, None, command).await?;
        Ok(ACCEPTED)
    }

    /// A live destination has stored a snapshot: all of its blobs are there, or it does not count.
    ///
    /// # Errors
    /// Where a blob is missing; what the machine refuses.
    pub async fn checkpoint(
        &self,
        call: &Call,
        transfer: TransferId,
        body: node::Checkpoint,
    ) -> Result<Accepted, ServiceError> {
        let node = self.node_of(call).await?;
        self.keep_uploaded(call.principal.project, body.digest, Default::default()).await?;
        let command = Command::Checkpoint {
            transfer,
            node,
            epoch: Epoch(body.epoch),
            incarnation: body.incarnation,
            digest: body.digest,
            follows: body.follows,
        };
        self.give(call, None, command).await?;
        Ok(ACCEPTED)
    }
}

/// The digest that recognises a repeated report, and that the next one names as `prev_hash`: over the report's
/// one printed form.
pub fn report_digest(report: &node::Usage) -> Digest {
    Digest::of(&serde_json::to_vec(report).expect("plain data always prints"))
}
