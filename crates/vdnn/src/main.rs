//! The `vdnn` command.

mod cli;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::Cli::try_parse() {
        Ok(arguments) => cli::run(arguments),
        Err(error) => cli::refuse_usage(&error),
    }
}
