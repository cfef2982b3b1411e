//! Money by hand, and the end: report usage in the tool form, raise, write off, terminate.

use handoff_core::grid::CommandKind;
use handoff_core::transfer::EndReason;
use handoff_core::{Command, Epoch};
use handoff_protocol::TransferId;
use handoff_protocol::request::{self, TransferView};

use crate::asked::{self, Call};
use crate::error::ServiceError;
use crate::service::Service;
use crate::words;

impl Service {
    /// Records money that was spent outside the gateway.
    ///
    /// # Errors
    /// What the machine refuses.
    pub async fn report_usage(
        &self,
        call: &Call,
        transfer: TransferId,
        body: request::ReportUsage,
    ) -> Result<TransferView, ServiceError> {
        let detail = body.detail.clone().unwrap_or_default();
        words::check("detail", &detail)?;
        let command = Command::RecordSpend { transfer, cost: body.cost_usd, detail };
        let request = asked::request(body.request_id.as_ref(), &transfer.to_string(), &body);
        self.change(call, transfer, request, command).await
    }

    /// Names the new absolute budget.
    ///
    /// # Errors
    /// What the machine refuses.
    pub async fn raise(
        &self,
        call: &Call,
        transfer: TransferId,
        body: request::Raise,
    ) -> Result<TransferView, ServiceError> {
        let command = Command::RaiseBudget { transfer, allocated: body.budget_usd };
        let request = asked::request(body.request_id.as_ref(), &transfer.to_string(), &body);
        self.change(call, transfer, request, command).await
    }

    /// Closes an epoch whose node will never report again.
    ///
    /// # Errors
    /// What the machine refuses.
    pub async fn write_off(
        &self,
        call: &Call,
        transfer: TransferId,
        body: request::WriteOff,
    ) -> Result<TransferView, ServiceError> {
        words::check_some("reason", &body.reason)?;
        let command = Command::WriteOff { transfer, epoch: Epoch(body.epoch) };
        let request = asked::request(body.request_id.as_ref(), &transfer.to_string(), &body);
        let replayed = self.give(call, Some(request.clone()), command).await?.replayed;
        if !replayed {
            self.record_reason(call, Some(transfer), CommandKind::WriteOff, &body.reason).await?;
        }
        self.answered(call, transfer, request).await
    }

    /// Ends a transfer.
    ///
    /// # Errors
    /// What the machine refuses, and reasons that are the machine's own words.
    pub async fn terminate(
        &self,
        call: &Call,
        transfer: TransferId,
        body: request::Terminate,
    ) -> Result<TransferView, ServiceError> {
        words::check_some("reason", &body.reason)?;
        let reason = match EndReason::from_words(&body.reason) {
            EndReason::Requested(words) => EndReason::Requested(words),
            EndReason::Moved | EndReason::GracePeriodExpired | EndReason::TimeToLive => {
                let why = format!("'{}' is what the control plane says of its own doing", body.reason);
                return Err(ServiceError::InvalidArgument { field: "reason", why });
            }
        };
        let command = Command::Terminate { transfer, reason };
        let request = asked::request(body.request_id.as_ref(), &transfer.to_string(), &body);
        self.change(call, transfer, request, command).await
    }
}
