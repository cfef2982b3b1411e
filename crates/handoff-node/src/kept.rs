//! Which blobs this node's destinations need, and forgetting the others: when a destination is reported absent,
//! nothing of its session is left.
//!
//! What a destination needs is noted before it is looked for, under the lock that a collection holds: so none
//! removes what a fetch under way has found already.

use std::collections::{BTreeMap, BTreeSet};

use handoff_gateway::control::DestinationKey;
use handoff_protocol::Digest;
use handoff_protocol::port::{BlobError, BlobStore};
use handoff_snapshot::{DirectoryBlobs, FetchError};
use tokio::sync::Mutex;

/// What is kept, by destination.
#[derive(Debug)]
pub(crate) struct Kept {
    blobs: DirectoryBlobs,
    needed: Mutex<BTreeMap<DestinationKey, BTreeSet<Digest>>>,
}

impl Kept {
    pub(crate) fn new(blobs: DirectoryBlobs) -> Self {
        Self { blobs, needed: Mutex::default() }
    }

    /// A destination needs this snapshot, and none that it needed before. Its manifest is read here, or there.
    pub(crate) async fn keep(
        &self,
        key: DestinationKey,
        snapshot: Digest,
        there: &dyn BlobStore,
    ) -> Result<(), FetchError> {
        let manifest = match handoff_snapshot::fetch::manifest(snapshot, &self.blobs).await {
            Ok(manifest) => manifest,
            Err(_) => handoff_snapshot::fetch::manifest(snapshot, there).await?,
        };
        let parts = manifest.parts.iter().map(|part| part.digest);
        let needed = parts.chain([snapshot]).collect();
        self.needed.lock().await.insert(key, needed);
        Ok(())
    }

    /// A destination needs nothing any more; what no other one needs goes.
    pub(crate) async fn forget(&self, key: DestinationKey) -> Result<(), BlobError> {
        let mut needed = self.needed.lock().await;
        needed.remove(&key);
        let keep: BTreeSet<Digest> = needed.values().flatten().copied().collect();
        for digest in self.blobs.stored().await? {
            if !keep.contains(&digest) {
                self.blobs.delete(digest).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use handoff_protocol::TransferId;
    use handoff_snapshot::SealContext;

    use super::*;

    fn key(number: u128) -> DestinationKey {
        DestinationKey { transfer_id: TransferId::from_u128(number), generation: 1 }
    }

    /// A snapshot in a store; the system prompt differs, the conversation does not.
    async fn stored(prompt: &str, blobs: &DirectoryBlobs) -> Digest {
        let input = format!(
            r#"{{"source_host":"h","system_prompt":"{prompt}","message_history":[{{"role":"user","content":"go"}}]}}"#
        );
        let input = handoff_snapshot::parse_input(input.as_bytes()).expect("an input");
        let sealed = handoff_snapshot::seal(&input, &SealContext::default()).expect("sealed");
        for blob in sealed.blobs {
            blobs.put(blob.digest, blob.bytes).await.expect("stored");
        }
        sealed.digest
    }

    /// H-91
    #[tokio::test]
    async fn what_the_last_destination_needed_goes_with_it_and_what_another_needs_stays() {
        let home = tempfile::tempdir().expect("a directory");
        let blobs = DirectoryBlobs::open(home.path(), 0).expect("opened");
        let kept = Kept::new(blobs.clone());
        let (one, two) = (stored("one", &blobs).await, stored("two", &blobs).await);
        kept.keep(key(1), one, &blobs).await.expect("there");
        kept.keep(key(2), two, &blobs).await.expect("there");
        kept.forget(key(1)).await.expect("gone");
        assert_eq!(blobs.size(one).await.expect("answers"), None);
        handoff_snapshot::verify(two, &blobs).await.expect("whole, the shared conversation included");
        kept.forget(key(2)).await.expect("gone");
        assert_eq!(blobs.stored().await.expect("answers"), []);
    }
}
