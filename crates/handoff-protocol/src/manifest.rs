//! A snapshot on the wire and on disk: an OCI image manifest whose layers are the snapshot's parts.
//!
//! ```text
//! manifest (its SHA-256 names the snapshot)
//! ├── config   application/vnd.oci.empty.v1+json   the two bytes {}
//! └── layers   one per part, in the order of Part::ALL, then by index
//!     ├── session         JSON: lineage, budget, environment, turn state, report      (exactly one)
//!     ├── system_prompt   the prompt, a JSON text as received                          (at most one)
//!     ├── messages        JSON lines in sealed chunks of about 256 KiB, and a tail     (any number, indexed)
//!     ├── tool_state      a JSON text as received                                      (at most one)
//!     ├── mcp_config      JSON: servers and credential references                      (at most one)
//!     ├── native          an agent's own session files, byte for byte                  (any number, indexed)
//!     └── workspace       tree and packs                                               (any number, indexed)
//! ```
//!
//! Version rule: `artifactType` carries the major version. An unknown major version is refused; unknown
//! annotations are carried. Source of the outer form: OCI Image Specification 1.1, `manifest.md`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Digest;
use crate::limits::{BLOB_BYTES, MANIFEST_BYTES, MANIFEST_PARTS, SNAPSHOT_LOGICAL_BYTES};

/// The type of a snapshot, version 1.
pub const ARTIFACT_TYPE: &str = "application/vnd.handoff.snapshot.v1+json";
/// The type of the manifest itself.
pub const MANIFEST_MEDIA_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// The type of the empty config.
pub const EMPTY_MEDIA_TYPE: &str = "application/vnd.oci.empty.v1+json";
/// The bytes of the empty config.
pub const EMPTY_CONFIG: &[u8] = b"{}";

const PART: &str = "dev.handoff.part";
const INDEX: &str = "dev.handoff.index";
const LOGICAL_SIZE: &str = "dev.handoff.logical-size";

/// What a layer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Lineage, budget, environment, turn state, report.
    Session,
    /// The system prompt.
    SystemPrompt,
    /// The conversation.
    Messages,
    /// The tools' state.
    ToolState,
    /// Tool servers and references to their credentials.
    McpConfig,
    /// Another agent's own files.
    Native,
    /// Files.
    Workspace,
}

impl Part {
    /// All, in the order of a manifest.
    pub const ALL: [Self; 7] = [
        Self::Session,
        Self::SystemPrompt,
        Self::Messages,
        Self::ToolState,
        Self::McpConfig,
        Self::Native,
        Self::Workspace,
    ];

    /// The word in annotations.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::SystemPrompt => "system_prompt",
            Self::Messages => "messages",
            Self::ToolState => "tool_state",
            Self::McpConfig => "mcp_config",
            Self::Native => "native",
            Self::Workspace => "workspace",
        }
    }

    /// Whether a snapshot may have several layers of it.
    pub const fn is_indexed(self) -> bool {
        match self {
            Self::Messages | Self::Native | Self::Workspace => true,
            Self::Session | Self::SystemPrompt | Self::ToolState | Self::McpConfig => false,
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.as_str() == word)
    }
}

/// One layer of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartRef {
    /// What it is.
    pub part: Part,
    /// Its place among the layers of the same part, from 0.
    pub index: u32,
    /// The type of its bytes, such as `application/jsonl` or `application/jsonl+zstd`.
    pub media_type: String,
    /// The digest of its bytes as stored.
    pub digest: Digest,
    /// How many bytes are stored.
    pub size: u64,
    /// How many bytes it unpacks to.
    pub logical_size: u64,
}

/// A parsed manifest whose limits, order and version have been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The layers, in order.
    pub parts: Vec<PartRef>,
}

/// Why bytes are not a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidManifest {
    /// Larger than any manifest may be.
    #[error("a manifest has at most {MANIFEST_BYTES} bytes and {MANIFEST_PARTS} parts")]
    TooLarge,
    /// Not the shape of an OCI image manifest.
    #[error("not an image manifest: {0}")]
    Shape(String),
    /// A version this program does not know.
    #[error("artifact type '{0}' is not supported; this program reads {ARTIFACT_TYPE}")]
    Version(String),
    /// A layer that does not follow the rules.
    #[error("layer {layer}: {why}")]
    Layer {
        /// Which, from 0.
        layer: usize,
        /// What is wrong with it.
        why: &'static str,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Image {
    schema_version: u32,
    media_type: String,
    #[serde(default)]
    artifact_type: String,
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: Digest,
    size: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

impl Manifest {
    /// Reads a manifest and checks it.
    ///
    /// # Errors
    /// On size, shape, version, an unknown or misplaced part, or more bytes than a snapshot may have.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidManifest> {
        if bytes.len() > MANIFEST_BYTES {
            return Err(InvalidManifest::TooLarge);
        }
        crate::json::check(bytes).map_err(|error| InvalidManifest::Shape(error.to_string()))?;
        let image: Image =
            serde_json::from_slice(bytes).map_err(|error| InvalidManifest::Shape(error.to_string()))?;
        if image.schema_version != 2 || image.media_type != MANIFEST_MEDIA_TYPE {
            return Err(InvalidManifest::Shape(format!(
                "schema {} {}",
                image.schema_version, image.media_type
            )));
        }
        if image.artifact_type != ARTIFACT_TYPE {
            return Err(InvalidManifest::Version(image.artifact_type));
        }
        if image.config.digest != Digest::of(EMPTY_CONFIG) {
            return Err(InvalidManifest::Shape("the config is not the empty one".to_owned()));
        }
        if image.layers.len() > MANIFEST_PARTS {
            return Err(InvalidManifest::TooLarge);
        }
        let parts = image.layers.into_iter().enumerate().map(|(layer, found)| read_layer(layer, found));
        let manifest = Self { parts: parts.collect::<Result<_, _>>()? };
        manifest.check()?;
        Ok(manifest)
    }

    /// The bytes of the manifest: the same parts give the same bytes, and so the same name.
    pub fn to_bytes(&self) -> Vec<u8> {
        let config = Descriptor {
            media_type: EMPTY_MEDIA_TYPE.to_owned(),
            digest: Digest::of(EMPTY_CONFIG),
            size: EMPTY_CONFIG.len() as u64,
            annotations: BTreeMap::new(),
        };
        let image = Image {
            schema_version: 2,
            media_type: MANIFEST_MEDIA_TYPE.to_owned(),
            artifact_type: ARTIFACT_TYPE.to_owned(),
            config,
            layers: self.parts.iter().map(write_layer).collect(),
        };
        serde_json::to_vec(&image).expect("strings and numbers always print")
    }

    /// The layers of one part, in order.
    pub fn of(&self, part: Part) -> impl Iterator<Item = &PartRef> {
        self.parts.iter().filter(move |found| found.part == part)
    }

    /// Bytes as stored, over all parts.
    pub fn size(&self) -> u64 {
        self.parts.iter().map(|part| part.size).sum()
    }

    fn check(&self) -> Result<(), InvalidManifest> {
        let mut last: Option<(Part, u32)> = None;
        let mut logical = 0u64;
        for (layer, found) in self.parts.iter().enumerate() {
            let wrong = |why| Err(InvalidManifest::Layer { layer, why });
            let expected = match last {
                Some((part, index)) if part == found.part => index + 1,
                Some((part, _)) if part > found.part => return wrong("parts are out of order"),
                Some(_) | None => 0,
            };
            if found.index != expected {
                return wrong("indexes count up from 0 without a gap");
            }
            if found.index > 0 && !found.part.is_indexed() {
                return wrong("this part may stand only once");
            }
            if found.size > BLOB_BYTES {
                return wrong("larger than a blob may be");
            }
            logical = logical.saturating_add(found.logical_size);
            if logical > SNAPSHOT_LOGICAL_BYTES {
                return wrong("the snapshot unpacks to more than it may");
            }
            last = Some((found.part, found.index));
        }
        match self.parts.first() {
            Some(PartRef { part: Part::Session, .. }) => Ok(()),
            _ => Err(InvalidManifest::Layer {
                layer: 0,
                why: "the session part comes first and must be there",
            }),
        }
    }
}

fn read_layer(layer: usize, found: Descriptor) -> Result<PartRef, InvalidManifest> {
    let wrong = |why| InvalidManifest::Layer { layer, why };
    let part = found.annotations.get(PART).and_then(|word| Part::parse(word));
    let index = found.annotations.get(INDEX).and_then(|word| word.parse().ok());
    let logical = found.annotations.get(LOGICAL_SIZE).and_then(|word| word.parse().ok());
    Ok(PartRef {
        part: part.ok_or(wrong("dev.handoff.part is missing or unknown"))?,
        index: index.ok_or(wrong("dev.handoff.index is not a number"))?,
        media_type: found.media_type,
        digest: found.digest,
        size: found.size,
        logical_size: logical.ok_or(wrong("dev.handoff.logical-size is not a number"))?,
    })
}

fn write_layer(part: &PartRef) -> Descriptor {
    let annotations = [
        (PART, part.part.as_str().to_owned()),
        (INDEX, part.index.to_string()),
        (LOGICAL_SIZE, part.logical_size.to_string()),
    ];
    Descriptor {
        media_type: part.media_type.clone(),
        digest: part.digest,
        size: part.size,
        annotations: annotations.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(part: Part, index: u32) -> PartRef {
        let digest = Digest::of(&[part as u8, index as u8]);
        PartRef { part, index, media_type: "application/json".to_owned(), digest, size: 2, logical_size: 2 }
    }

    fn manifest(parts: &[(Part, u32)]) -> Manifest {
        Manifest { parts: parts.iter().map(|(what, index)| part(*what, *index)).collect() }
    }

    #[test]
    fn a_manifest_reads_back_and_prints_the_same_bytes() {
        let whole =
            manifest(&[(Part::Session, 0), (Part::Messages, 0), (Part::Messages, 1), (Part::Workspace, 0)]);
        let bytes = whole.to_bytes();
        assert_eq!(Manifest::parse(&bytes).expect("its own bytes"), whole);
        assert_eq!(Manifest::parse(&bytes).expect("its own bytes").to_bytes(), bytes);
    }

    /// H-30
    #[test]
    fn order_gaps_repetition_and_a_missing_session_are_refused() {
        for parts in [
            &[][..],
            &[(Part::Messages, 0)],
            &[(Part::Session, 0), (Part::Messages, 1)],
            &[(Part::Session, 0), (Part::Session, 1)],
            &[(Part::Session, 0), (Part::Workspace, 0), (Part::Messages, 0)],
            &[(Part::Session, 0), (Part::Messages, 0), (Part::Messages, 0)],
        ] {
            let refused = Manifest::parse(&manifest(parts).to_bytes());
            assert!(matches!(refused, Err(InvalidManifest::Layer { .. })), "{parts:?}");
        }
    }

    /// H-34
    #[test]
    fn another_version_and_garbage_are_refused_by_name() {
        let text = String::from_utf8(manifest(&[(Part::Session, 0)]).to_bytes()).expect("JSON");
        let newer = text.replace("snapshot.v1", "snapshot.v2");
        assert!(matches!(Manifest::parse(newer.as_bytes()), Err(InvalidManifest::Version(_))));
        assert!(matches!(Manifest::parse(b"\0\0"), Err(InvalidManifest::Shape(_))));
        assert_eq!(Manifest::parse(&vec![b' '; MANIFEST_BYTES + 1]), Err(InvalidManifest::TooLarge));
    }

    #[test]
    fn sizes_are_limited_before_anything_is_fetched() {
        let mut bomb = manifest(&[(Part::Session, 0)]);
        bomb.parts[0].logical_size = SNAPSHOT_LOGICAL_BYTES + 1;
        assert!(Manifest::parse(&bomb.to_bytes()).is_err());
        bomb.parts[0].logical_size = 2;
        bomb.parts[0].size = BLOB_BYTES + 1;
        assert!(Manifest::parse(&bomb.to_bytes()).is_err());
    }
}
