//! A destination whose record cannot be read. Nothing is known of it but whose it is, which its directory and all
//! marks of its sandboxes say: so everything of it is ended, and it begins anew. What the agent left is not stored:
//! without its epoch and incarnation it may be anybody's.

use std::path::Path;

use handoff_protocol::node::ObservedState;
use handoff_sandbox::{Driver, Leftovers, Name};

use super::{Place, StepError, blocking};
use crate::plan::Step;
use crate::record;

impl Place {
    /// Ends whatever an unreadable record may have spoken of, and puts the record aside. Before that is done nothing
    /// else is: an agent may run that nobody here knows.
    pub(super) async fn settle_damage(&mut self) {
        while let Some(why) = self.damaged.clone() {
            match self.begin_anew(&why).await {
                Ok(()) => {
                    self.damaged = None;
                    (self.failures, self.failed) = (0, None);
                }
                Err(error) => self.rest_after(Step::Clear, &error).await,
            }
        }
    }

    async fn begin_anew(&mut self, why: &str) -> Result<(), StepError> {
        let (driver, dir, prefix) =
            (self.shared.driver.clone(), self.dir.clone(), format!("{}-", self.key()));
        blocking(move || end_all(&*driver, &prefix, &dir)).await?;
        let reason = format!(
            "its record on this node cannot be read ({why}): all of it was ended, what it did after its last \
             accepted snapshot is lost, and it begins anew"
        );
        tracing::error!(place = %self.key(), reason, "damaged");
        let _ = self.observe(ObservedState::Failed, Some(reason)).await;
        self.close_known().await?;
        let dir = self.dir.clone();
        // Last: as long as it stands, the next node does all of this again.
        blocking(move || record::put_aside(&dir)).await?;
        self.save().await
    }
}

/// Ends every sandbox of a destination, by the marks that all of them carry, and proves it.
fn end_all(driver: &dyn Driver, prefix: &str, dir: &Path) -> Result<(), StepError> {
    for left in driver.leftovers(prefix)? {
        if let Err(left) = driver.teardown(&left.name, dir) {
            // The search at the end tells of it; one that does not end keeps no other one alive.
            tracing::warn!(%left, "a sandbox of a damaged destination does not end");
        }
    }
    // In the directory may be traces of one whose marks are gone: this finds what they lead to.
    let unnamed: Name = format!("{prefix}damaged").parse().expect("ids are lower-case words");
    driver.teardown(&unnamed, dir)?;
    match driver.leftovers(prefix)?.into_iter().next() {
        Some(left) => Err(Box::<Leftovers>::from(left).into()),
        None => Ok(()),
    }
}
