//! x y
#[derive(clap::Args)]
pub struct Options {}
pub fn run(_f: &std::path::Path, _o: &Options) -> anyhow::Result<bool> {
    Ok(true)
}
