//! The policy in force: every call is judged by one, from the moment it is let in to its end, and the operator's
//! next one replaces it whole.

use std::sync::{Arc, PoisonError, RwLock};

use crate::policy::Policy;
use crate::upstream::Connections;

/// One policy, and the connections that are made by it.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) policy: Policy,
    pub(crate) connections: Connections,
}

impl Rules {
    pub(crate) fn new(policy: Policy) -> reqwest::Result<Self> {
        let connections = Connections::new(&policy)?;
        Ok(Self { policy, connections })
    }
}

/// Where the rules of the moment are read.
#[derive(Debug)]
pub(crate) struct InForce(RwLock<Arc<Rules>>);

impl InForce {
    pub(crate) fn new(rules: Rules) -> Self {
        Self(RwLock::new(Arc::new(rules)))
    }

    /// To be asked once by whoever judges something, so that all of it is judged alike.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn replace(&self, rules: Arc<Rules>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = rules;
    }
}
