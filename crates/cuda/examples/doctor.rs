//! Prints what [`vdnn_cuda::doctor`] finds, one JSON document.

fn main() {
    let report = vdnn_cuda::doctor::doctor(&vdnn_cuda::library::LibraryOptions::default());
    println!("{}", serde_json::to_string_pretty(&report).expect("plain data"));
}
