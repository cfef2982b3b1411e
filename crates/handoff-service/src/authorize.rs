//! What lets provision and activate happen: a token, or an approval that mints one. And minting for
//! orchestrators.

use handoff_core::grid::CommandKind;
use handoff_core::ledger::{Applied, Envelope, LedgerError, Request};
use handoff_core::token::TokenClaims;
use handoff_core::{Actor, Command, Refusal, Role};
use handoff_protocol::document::Facts;
use handoff_protocol::request::{IssueToken, IssuedToken, Operation, TokenText};
use handoff_protocol::{ApprovalId, Timestamp, TokenId};

use crate::access::Principal;
use crate::approval::Subject;
use crate::asked::Call;
use crate::error::ServiceError;
use crate::service::Service;
use crate::token::InvalidToken;

/// An operation that needs a token.
pub(crate) struct Wanted<'a> {
    pub(crate) request: Request,
    pub(crate) token: Option<&'a TokenText>,
    /// What an approval would be bound to.
    pub(crate) subject: Subject,
    /// Why nobody should be bothered with it.
    pub(crate) objection: Option<ServiceError>,
}

impl Service {
    /// Mints a transfer token. Orchestrators only. The row that says so is durable before the token is shown.
    ///
    /// # Errors
    /// Where whoever asks may not, the transfer does not exist, the tier is unknown, or the time is too
    /// long.
    pub async fn issue_token(
        &self,
        principal: &Principal,
        body: &IssueToken,
    ) -> Result<IssuedToken, ServiceError> {
        self.permit_roles(principal, &[Role::Orchestrator, Role::Admin], "issue tokens").await?;
        let ttl_ms = body.ttl_ms.unwrap_or(self.config().token_ttl_ms);
        let most = self.config().longest_token_ttl_ms;
        if ttl_ms == 0 || ttl_ms > most {
            let why = format!("a token is good for 1 to {most} ms");
            return Err(ServiceError::InvalidArgument { field: "ttl_ms", why });
        }
        if body.operation == Operation::Activate && (body.max_budget_usd.is_some() || body.tier.is_some()) {
            let why = "a budget and a tier bind provision_runtime only".to_owned();
            return Err(ServiceError::InvalidArgument { field: "operation", why });
        }
        if let Some(tier) = &body.tier
            && self.config().policy.tier(tier).is_none()
        {
            return Err(Refusal::TierUnknown { tier: tier.clone() }.into());
        }
        self.found(principal.project, body.transfer_id).await?;
        let now = self.inner.ledger.now().await?;
        let claims = TokenClaims {
            id: TokenId::from(uuid::Uuid::now_v7()),
            transfer: body.transfer_id,
            operation: body.operation,
            issued_at: now,
            expires_at: now.plus_ms(ttl_ms),
            max_budget: body.max_budget_usd,
            tier: body.tier.clone(),
        };
        self.record_minted(principal, &claims, None).await?;
        let token = self.config().token_keys.mint(&claims);
        Ok(IssuedToken { token_id: claims.id, token, expires_at: claims.expires_at })
    }

    /// The audit row of a new token: its id and what it allows, never its text.
    pub(crate) async fn record_minted(
        &self,
        principal: &Principal,
        claims: &TokenClaims,
        approval: Option<ApprovalId>,
    ) -> Result<(), ServiceError> {
        let mut detail = Facts::new();
        let mut say = |key: &str, value: Option<String>| {
            detail.extend(value.map(|value| (key.to_owned(), value)));
        };
        say("token_id", Some(claims.id.to_string()));
        say("operation", Some(claims.operation.as_str().to_owned()));
        say("expires_at", Some(claims.expires_at.to_string()));
        say("max_budget_usd", claims.max_budget.map(|budget| budget.to_string()));
        say("tier", claims.tier.as_ref().map(ToString::to_string));
        say("approval_id", approval.map(|approval| approval.to_string()));
        let minters = [Role::Orchestrator, Role::Admin, Role::Caller];
        let actor = self.permit_roles(principal, &minters, "have tokens minted").await?;
        self.inner.recorder.record(principal, actor, Some(claims.transfer), "token_minted", detail).await
    }

    /// Applies an operation that needs a token. A request that was accepted before is answered again, whatever
    /// became of its token.
    pub(crate) async fn authorized(
        &self,
        call: &Call,
        wanted: Wanted<'_>,
        command: impl Fn(TokenClaims) -> Command + Sync,
    ) -> Result<Applied, ServiceError> {
        let kind = match wanted.subject.operation {
            Operation::ProvisionRuntime => CommandKind::Provision,
            Operation::Activate => CommandKind::Activate,
        };
        self.permit(&call.principal, kind).await?;
        let transfer = wanted.subject.transfer;
        match wanted.token.map(|token| self.config().token_keys.verify(token)) {
            Some(Ok(claims)) => self.give(call, Some(wanted.request), command(claims)).await,
            Some(Err(InvalidToken)) => match self.given_before(call, &wanted, &command).await {
                Err(error) if error.refusal().is_some() => {
                    self.inner.recorder.token_invalid(&call.principal, transfer).await;
                    Err(InvalidToken.into())
                }
                done => done,
            },
            None => self.with_approval(call, wanted, &command).await,
        }
    }

    async fn with_approval(
        &self,
        call: &Call,
        mut wanted: Wanted<'_>,
        command: &(impl Fn(TokenClaims) -> Command + Sync),
    ) -> Result<Applied, ServiceError> {
        match self.given_before(call, &wanted, command).await {
            Err(ServiceError::Ledger(LedgerError::Refused(Refusal::TokenExpired { .. }))) => {}
            done => return done,
        }
        if let Some(objection) = wanted.objection.take() {
            return Err(objection);
        }
        let _not_deciding = self.inner.deciding.read().await;
        let claims = self.approved(&call.principal, &wanted.subject).await?;
        let token = claims.id;
        let done = self.give(call, Some(wanted.request), command(claims)).await;
        let over = match &done {
            Ok(_) => true,
            Err(error) => {
                matches!(error.refusal(), Some(Refusal::TokenUsed { .. } | Refusal::TokenExpired { .. }))
            }
        };
        if over {
            self.approval_spent(token);
        }
        done
    }

    /// Asks for what an accepted request was answered with. The claims that go with it were never good, so
    /// that nothing new can come of it; and it is the control plane that looks, so that the refusal which is
    /// expected is not held against whoever asks.
    async fn given_before(
        &self,
        call: &Call,
        wanted: &Wanted<'_>,
        command: &(impl Fn(TokenClaims) -> Command + Sync),
    ) -> Result<Applied, ServiceError> {
        let never_good = TokenClaims {
            id: TokenId::from(uuid::Uuid::now_v7()),
            transfer: wanted.subject.transfer,
            operation: wanted.subject.operation,
            issued_at: Timestamp::from_unix_ms(i64::MAX),
            expires_at: Timestamp::from_unix_ms(i64::MIN),
            max_budget: None,
            tier: None,
        };
        let envelope = Envelope {
            project: call.principal.project,
            actor: Actor { principal: call.principal.name.clone(), role: Role::ControlPlane },
            request: Some(wanted.request.clone()),
            expected_version: call.expected_version,
            command: command(never_good),
        };
        Ok(self.apply(envelope).await?)
    }
}
