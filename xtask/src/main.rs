//! Repository chores, one file each: `cargo xtask CHORE`.

mod nvrtc;

const USAGE: &str = "usage: cargo xtask CHORE
  nvrtc [--install]   compile every CUDA kernel without a GPU; --install fetches the compiler into target/";

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("nvrtc") => nvrtc::run(&args[1..]),
        _ => {
            eprintln!("{USAGE}");
            std::process::exit(2)
        }
    }
}
