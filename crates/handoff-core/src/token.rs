//! When a transfer token's claims allow an operation. The signature is checked before they get here, and the
//! text of a token never does.

use handoff_protocol::limits::TOKEN_LEEWAY_MS;
use handoff_protocol::request::Operation;
use handoff_protocol::{NanoUsd, TierName, Timestamp, TokenId, TransferId};

use crate::refusal::Refusal;

/// What a verified token says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenClaims {
    /// Its id; spending it makes this the authorisation's id.
    pub id: TokenId,
    /// The one transfer it is for.
    pub transfer: TransferId,
    /// The one operation it is for.
    pub operation: Operation,
    /// When it was made.
    pub issued_at: Timestamp,
    /// When it stops being good.
    pub expires_at: Timestamp,
    /// The most that provisioning may ask for.
    pub max_budget: Option<NanoUsd>,
    /// The only tier that provisioning may ask for.
    pub tier: Option<TierName>,
}

impl TokenClaims {
    /// Whether it allows this operation on this transfer at this time. Whether it was spent is another
    /// question, which the transaction answers.
    ///
    /// # Errors
    /// A refusal with a `token_*` code.
    pub fn judge(&self, transfer: TransferId, operation: Operation, now: Timestamp) -> Result<(), Refusal> {
        if self.transfer != transfer {
            return Err(Refusal::TokenTransfer { transfer });
        }
        if self.operation != operation {
            return Err(Refusal::TokenScope { transfer, why: "it is for another operation" });
        }
        let expired = now > self.expires_at.plus_ms(TOKEN_LEEWAY_MS);
        let premature = now.plus_ms(TOKEN_LEEWAY_MS) < self.issued_at;
        if expired || premature {
            return Err(Refusal::TokenExpired { transfer, expires_at: self.expires_at });
        }
        Ok(())
    }

    /// Whether it allows this size and budget.
    ///
    /// # Errors
    /// [`Refusal::TokenScope`] when it allows less.
    pub fn judge_size(&self, tier: &TierName, budget: NanoUsd) -> Result<(), Refusal> {
        let transfer = self.transfer;
        if self.max_budget.is_some_and(|most| budget > most) {
            return Err(Refusal::TokenScope { transfer, why: "it allows a smaller budget" });
        }
        if self.tier.as_ref().is_some_and(|only| only != tier) {
            return Err(Refusal::TokenScope { transfer, why: "it is for another tier" });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(issued_s: i64, expires_s: i64) -> TokenClaims {
        TokenClaims {
            id: TokenId::from_u128(1),
            transfer: TransferId::from_u128(1),
            operation: Operation::Activate,
            issued_at: Timestamp::from_unix_ms(issued_s * 1000),
            expires_at: Timestamp::from_unix_ms(expires_s * 1000),
            max_budget: None,
            tier: None,
        }
    }

    /// H-22
    #[test]
    fn case_s17_one_leeway_of_five_seconds_both_ways() {
        let now = Timestamp::from_unix_ms(1_000_000);
        let judge = |token: TokenClaims| token.judge(token.transfer, Operation::Activate, now).is_ok();
        assert!(judge(token(900, 999)), "expired one second ago");
        assert!(!judge(token(900, 970)), "thirty seconds ago");
        assert!(!judge(token(900, 939)), "sixty-one seconds ago");
        assert!(!judge(token(1030, 2000)), "made thirty seconds from now");
        assert!(judge(token(1004, 2000)), "made four seconds from now");
    }

    #[test]
    fn a_token_is_for_one_transfer_one_operation_and_no_more_than_it_says() {
        let now = Timestamp::from_unix_ms(950_000);
        let mut token = token(900, 999);
        let other = TransferId::from_u128(2);
        let wrong = token.judge(other, Operation::Activate, now);
        assert!(matches!(wrong, Err(Refusal::TokenTransfer { .. })));
        let wrong = token.judge(token.transfer, Operation::ProvisionRuntime, now);
        assert!(matches!(wrong, Err(Refusal::TokenScope { .. })));
        token.max_budget = Some(NanoUsd::from_nano(5));
        token.tier = Some("sandbox-small".into());
        assert!(token.judge_size(&"sandbox-small".into(), NanoUsd::from_nano(5)).is_ok());
        assert!(token.judge_size(&"sandbox-small".into(), NanoUsd::from_nano(6)).is_err());
        assert!(token.judge_size(&"sandbox-large".into(), NanoUsd::from_nano(5)).is_err());
    }
}
