//! Taking up a changed policy while calls go on.

use std::sync::Arc;

use super::{Gateway, TakeUpError};
use crate::credential::Cabinet;
use crate::destination::Destination;
use crate::in_force::Rules;
use crate::policy::Policy;

impl Gateway {
    pub(super) async fn take_up(&self, policy: Policy) -> Result<(), TakeUpError> {
        let _alone = self.taking_up.write().await;
        let rules = Arc::new(Rules::new(policy).map_err(TakeUpError::Connections)?);
        let furnished: Vec<Arc<Destination>> =
            self.destinations().values().filter(|one| one.is_furnished()).map(Arc::clone).collect();
        let (resolver, by) = (self.resolver.clone(), Arc::clone(&rules));
        let filling = tokio::task::spawn_blocking(move || {
            let fill = |destination: Arc<Destination>| {
                let (references, upstreams) = destination.needs();
                let (cabinet, missing) = Cabinet::fill(&resolver, &by.policy, &references, &upstreams);
                (destination, cabinet, missing)
            };
            furnished.into_iter().map(fill).collect::<Vec<_>>()
        });
        let filled = filling.await.map_err(|_| TakeUpError::Ended)?;
        self.shared.in_force.replace(rules);
        for (destination, cabinet, missing) in filled {
            for reference in missing {
                tracing::warn!(%reference, "a running destination has no such credential under the new policy");
            }
            destination.refurnish(cabinet);
        }
        Ok(())
    }
}
