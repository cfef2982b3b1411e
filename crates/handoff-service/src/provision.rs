//! Provision: sizes and budgets a destination.

use handoff_core::command::Provision;
use handoff_core::{Command, Least, Refusal, budget};
use handoff_protocol::TransferId;
use handoff_protocol::document::Facts;
use handoff_protocol::request::{self, Operation, TransferView};

use crate::approval::Subject;
use crate::asked::{self, Call};
use crate::authorize::Wanted;
use crate::error::ServiceError;
use crate::service::Service;

impl Service {
    /// Sizes and budgets a destination. Needs a token, or an approval.
    ///
    /// # Errors
    /// `authorization_required` where there is neither; what the machine refuses.
    pub async fn provision(
        &self,
        call: &Call,
        transfer: TransferId,
        mut body: request::Provision,
    ) -> Result<TransferView, ServiceError> {
        let token = body.token.take();
        let request = asked::request(body.request_id.as_ref(), &transfer.to_string(), &body);
        let wanted = Wanted {
            request: request.clone(),
            token: token.as_ref(),
            subject: self.provision_subject(call, transfer, &body),
            objection: self.provision_objection(&body),
        };
        self.authorized(call, wanted, |token| {
            Command::Provision(Provision {
                transfer,
                token,
                tier: body.tier.clone(),
                budget: body.budget_usd,
                carve: body.carve,
                node: body.node_id,
            })
        })
        .await?;
        self.answered(call, transfer, request).await
    }

    fn provision_subject(&self, call: &Call, transfer: TransferId, body: &request::Provision) -> Subject {
        let mut figures = Facts::from([
            ("tier".to_owned(), body.tier.to_string()),
            ("budget_usd".to_owned(), body.budget_usd.to_string()),
        ]);
        if body.carve {
            figures.insert("carve".to_owned(), "true".to_owned());
        }
        if let Some(node) = body.node_id {
            figures.insert("node_id".to_owned(), node.to_string());
        }
        Subject {
            project: call.principal.project,
            asked_by: call.principal.name.clone(),
            transfer,
            operation: Operation::ProvisionRuntime,
            figures,
            budget: body.budget_usd,
        }
    }

    /// What would be refused whoever approved it.
    fn provision_objection(&self, body: &request::Provision) -> Option<ServiceError> {
        let policy = &self.config().policy;
        let Some(tier) = policy.tier(&body.tier) else {
            return Some(Refusal::TierUnknown { tier: body.tier.clone() }.into());
        };
        let least = budget::least(policy, tier);
        let small = body.budget_usd < least;
        small.then(|| Refusal::BudgetTooSmall { budget: body.budget_usd, least, of: Least::ToBegin }.into())
    }
}
