//! From what a caller gives to a snapshot that is stored whole and on record: sealed here from a minimal input,
//! or uploaded before and checked here.

use handoff_core::ledger::SnapshotRecord;
use handoff_protocol::document::SnapshotInput;
use handoff_protocol::limits::INLINE_SNAPSHOT_BYTES;
use handoff_protocol::manifest::Manifest;
use handoff_protocol::request::Labels;
use handoff_protocol::{Digest, ProjectId};
use handoff_snapshot::fetch::{self, FetchError};
use handoff_snapshot::{SealContext, seal};

use crate::error::ServiceError;
use crate::service::Service;

/// What a caller gives.
pub(crate) enum Given {
    /// A snapshot whose blobs were uploaded.
    Uploaded(Digest),
    /// The minimal input.
    Input(SnapshotInput),
}

impl Given {
    /// Of two fields that exclude each other.
    pub(crate) fn of(
        snapshot: Option<Digest>,
        input: Option<SnapshotInput>,
    ) -> Result<Option<Self>, ServiceError> {
        match (snapshot, input) {
            (Some(_), Some(_)) => {
                let why = "give a snapshot or an input, not both".to_owned();
                Err(ServiceError::InvalidArgument { field: "input", why })
            }
            (Some(digest), None) => Ok(Some(Self::Uploaded(digest))),
            (None, Some(input)) => Ok(Some(Self::Input(input))),
            (None, None) => Ok(None),
        }
    }
}

impl Service {
    /// The name of a snapshot that is stored whole and on record.
    pub(crate) async fn keep(
        &self,
        project: ProjectId,
        given: Given,
        context: SealContext,
        labels: Labels,
    ) -> Result<Digest, ServiceError> {
        match given {
            Given::Uploaded(digest) => self.keep_uploaded(project, digest, labels).await,
            Given::Input(input) => self.keep_input(project, input, context, labels).await,
        }
    }

    async fn keep_input(
        &self,
        project: ProjectId,
        input: SnapshotInput,
        context: SealContext,
        labels: Labels,
    ) -> Result<Digest, ServiceError> {
        let bytes = inline_bytes(&input);
        if bytes > INLINE_SNAPSHOT_BYTES {
            return Err(ServiceError::TooLarge { bytes, most: INLINE_SNAPSHOT_BYTES });
        }
        let references = input.mcp_config.iter().filter_map(|server| server.cred_ref.as_ref());
        let references = references.map(ToString::to_string).collect();
        // Hashing and compressing would hold up everything else on this thread.
        let sealed = tokio::task::spawn_blocking(move || seal(&input, &context)).await;
        let sealed = sealed.map_err(|error| ServiceError::Internal(format!("sealing failed: {error}")))??;
        let manifest = sealed.manifest.clone();
        let digest = sealed.store(self.inner.blobs.as_ref()).await?;
        self.put_on_record(project, digest, &manifest, references, labels).await?;
        Ok(digest)
    }

    /// Checks that every blob of an uploaded snapshot is stored, and puts it on record.
    pub(crate) async fn keep_uploaded(
        &self,
        project: ProjectId,
        digest: Digest,
        labels: Labels,
    ) -> Result<Digest, ServiceError> {
        if self.inner.ledger.snapshot(project, digest).await?.is_some() {
            return Ok(digest);
        }
        let blobs = self.inner.blobs.as_ref();
        let manifest = fetch::manifest(digest, blobs).await?;
        let missing = fetch::missing(&manifest, blobs).await?;
        if let Some(first) = missing.first() {
            return Err(ServiceError::BlobsMissing { missing: missing.len(), first: first.digest });
        }
        self.put_on_record(project, digest, &manifest, Vec::new(), labels).await?;
        Ok(digest)
    }

    async fn put_on_record(
        &self,
        project: ProjectId,
        digest: Digest,
        manifest: &Manifest,
        references: Vec<String>,
        labels: Labels,
    ) -> Result<(), ServiceError> {
        let size = self.inner.blobs.size(digest).await?;
        let size = size.ok_or(FetchError::Blobs(handoff_protocol::port::BlobError::NotFound(digest)))?;
        let parts = manifest.parts.iter().map(|part| (part.digest, part.size));
        let blobs = parts.chain([(digest, size)]).collect();
        let record = SnapshotRecord { digest, blobs, references, labels };
        Ok(self.inner.ledger.keep_snapshot(project, record).await?)
    }
}

/// Bytes of an input as it was written, without what stands between its texts.
fn inline_bytes(input: &SnapshotInput) -> usize {
    let texts = input.message_history.iter().chain(&input.system_prompt).chain(&input.tool_state);
    let servers = serde_json::to_vec(&input.mcp_config).map_or(0, |text| text.len());
    texts.map(|text| text.get().len()).sum::<usize>() + servers
}
