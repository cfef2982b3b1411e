//! The JSON Schemas of the snapshot format, as they stand in the `schema` folder of this crate.

use handoff_protocol::document::SessionDocument;
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

use crate::tree::Tree;

/// What every layer of a manifest is annotated with. Annotations are strings by the OCI specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LayerAnnotations {
    /// What the layer is.
    #[serde(rename = "dev.handoff.part")]
    pub part: PartWord,
    /// Its place among the layers of the same part, from 0.
    #[serde(rename = "dev.handoff.index")]
    #[schemars(regex(pattern = "^(0|[1-9][0-9]*)$"))]
    pub index: String,
    /// Bytes that it unpacks to.
    #[serde(rename = "dev.handoff.logical-size")]
    #[schemars(regex(pattern = "^(0|[1-9][0-9]*)$"))]
    pub logical_size: String,
}

/// The words for parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartWord {
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

/// Every schema with the name of its file.
pub fn schemas() -> [(&'static str, Schema); 3] {
    [
        ("session.json", schema_for!(SessionDocument)),
        ("tree.json", schema_for!(Tree)),
        ("layer.json", schema_for!(LayerAnnotations)),
    ]
}

#[cfg(test)]
mod tests {
    use handoff_protocol::Digest;
    use handoff_protocol::manifest::{Manifest, Part, PartRef};

    use super::*;

    #[test]
    fn the_schemas_are_the_ones_in_the_folder() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
        for (name, schema) in schemas() {
            let now = serde_json::to_string_pretty(&schema).expect("prints") + "\n";
            if std::env::var_os("HANDOFF_WRITE_GOLDEN").is_some() {
                std::fs::write(folder.join(name), &now).expect("written");
            }
            let golden = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
            assert_eq!(golden, now, "schema/{name} differs; HANDOFF_WRITE_GOLDEN=1 writes it anew");
        }
    }

    #[test]
    fn every_layer_of_a_manifest_follows_the_schema() {
        let layer = |part| PartRef {
            part,
            index: 0,
            media_type: "application/json".to_owned(),
            digest: Digest::of(b"{}"),
            size: 2,
            logical_size: 2,
        };
        let manifest = Manifest { parts: Part::ALL.into_iter().map(layer).collect() };
        let image: serde_json::Value = serde_json::from_slice(&manifest.to_bytes()).expect("JSON");
        let layers = image["layers"].as_array().expect("layers");
        for (layer, part) in layers.iter().zip(Part::ALL) {
            let annotations: LayerAnnotations =
                serde_json::from_value(layer["annotations"].clone()).expect("follows the schema");
            let word = serde_json::to_value(annotations.part).expect("prints");
            assert_eq!(word, part.as_str());
            assert_eq!(
                layer["annotations"],
                serde_json::to_value(&annotations).expect("prints"),
                "and no more"
            );
        }
    }
}
