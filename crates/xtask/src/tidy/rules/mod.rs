//! The rules. To add one: a file here with its tests, and its entry in one of the two lists.

mod code_markers;
mod core_is_pure;
mod crate_graph;
mod crate_lints;
mod document_length;
mod file_length;
mod function_length;
mod guarded_sql;
mod links;
mod lock_file;
mod machine_facts;
mod module_doc;
mod module_names;
mod money_is_integer;
mod no_hand_written_begin;
mod no_sleep;
mod spelling;
mod unsafe_only_in_sandbox;
mod wildcard_arm;

use super::repo::Repo;
use super::source::Source;
use super::{Finding, manifest, rooms};

/// Rules that look at one source.
pub(super) const OF_SOURCE: &[fn(&Source<'_>) -> Vec<Finding>] = &[
    core_is_pure::check,
    file_length::check,
    function_length::check,
    guarded_sql::check,
    module_doc::check,
    module_names::check,
    money_is_integer::check,
    no_hand_written_begin::check,
    no_sleep::check,
    spelling::check,
    unsafe_only_in_sandbox::check,
    wildcard_arm::check,
];

/// Rules that look at the repository as a whole.
pub(super) const OF_REPO: &[fn(&Repo) -> Vec<Finding>] = &[
    code_markers::check,
    crate_graph::check,
    crate_lints::check,
    document_length::check,
    guarded_sql::check_files,
    links::check,
    lock_file::check,
    machine_facts::check,
];
