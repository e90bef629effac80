//! Repository chores, one file each: `cargo xtask CHORE`.

mod nvrtc;
mod tidy;

const USAGE: &str = "usage: cargo xtask CHORE
  tidy [--shrink]     check house rules; --shrink shortens the list of long functions
  nvrtc [--install]   compile every CUDA kernel without a GPU; --install fetches the compiler into target/";

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("tidy") => tidy::run(&args[1..]),
        Some("nvrtc") => nvrtc::run(&args[1..]),
        _ => {
            eprintln!("{USAGE}");
            std::process::exit(2)
        }
    }
}
