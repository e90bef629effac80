//! What users get wrong: exit status 1 with a sentence that says what was expected, found and to be tried; 2 for usage. Never
//! a panic, never a half-written document.

use crate::{TINY, check_failure, fails, vdnn_in};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

#[test]
fn unknown_names_get_the_nearest_ones() {
    fails(1, "plan --model resnet-51", &["resnet-51", "resnet"]);
    fails(1, "train --device cpu --model vgg17", &["vgg17", "vgg1"]);
    fails(1, "plan --policy conf", &["conf", "conv"]);
    fails(1, "plan --machine titan", &["titan-x"]);
    fails(1, "train --device cpu --data minst", &["minst", "mnist"]);
    fails(1, "plan --machine nowhere/x.json", &["nowhere/x.json"]);
    fails(1, "plan --profile nowhere.json", &["nowhere.json"]);
}

#[test]
fn usage_is_status_two_and_also_a_document() {
    fails(2, "plan --budget 12Gx", &["12Gx", "--budget", "12GiB"]);
    fails(2, "plan --budget -1", &["-1"]);
    fails(2, "plan --min-offload 99999999999TiB", &["--min-offload"]);
    fails(2, "plan --batch-size 1e12", &["--batch-size"]);
    fails(2, "plan --batch-size -3", &["-3"]);
    fails(2, "plan --prefetch sometimes", &["paper, lookahead:N or cost"]);
    fails(2, "plan --sync never", &["per-layer or events"]);
    fails(2, "plan --placement anywhere", &["planned, first-fit or size-class"]);
    fails(2, "profile --pieces 2,3 --out x.json", &["--pieces", "one of 2, 4, 8, 16, found 3"]);
    fails(2, "train --device tpu", &["cpu, cuda or cuda:NUMBER"]);
    fails(2, "train --device cpu --lr nan", &["--lr", "at least 0", "nan"]);
    fails(2, "train --device cpu --momentum inf", &["--momentum", "at least 0"]);
    fails(2, "train --device cpu --weight-decay x", &["--weight-decay"]);
    fails(2, "plan --no-such-option", &["--no-such-option"]);
    fails(2, "fly", &["fly"]);
}

/// Where everything fits any size is taken; within less, what cannot be proved is refused.
#[test]
fn an_allocation_of_everything_on_the_device_says_what_to_do_about_homes_elsewhere() {
    let plan = "plan --model vgg-small --policy baseline --state host --min-offload 0";
    fails(1, plan, &["features.0.weight has its home in host memory", "--state device"]);
}

#[test]
fn what_optimal_cannot_prove_is_refused() {
    let plan = "plan --model vgg-small --policy optimal";
    fails(1, &format!("{plan} --budget 1MiB"), &["optimal", "expected at most 28 steps", "use `hybrid`"]);
    assert_eq!(crate::succeeds(&format!("{plan} --budget 8GiB")).text("policy"), "optimal");
}

#[test]
fn sizes_that_cannot_be() {
    fails(1, "plan -b 0", &["batch size", "at least 1", "found 0"]);
    fails(1, "plan -b 18446744073709551615", &["smaller batch"]);
    fails(1, "plan --model vgg16 -b 1000000000000", &["features.0", "smaller batch"]);
    fails(1, "plan --image-size 0", &["image size", "at least 1"]);
    fails(1, "plan --image-size 4000000000", &["smaller batch or image"]);
    fails(1, "train --device cpu -b 0", &["batch", "at least 1"]);
    fails(1, "train --device cpu -b 18446744073709551615", &["--batch-size", "10000 training images"]);
    fails(1, "train --device cpu -b 1000000000000", &["--batch-size", "found 1000000000000"]);
    fails(1, &format!("{TINY} --samples 0").replace("--samples 80 ", ""), &["samples", "expected 1 to"]);
    fails(1, &format!("{TINY} --threads 0"), &["--threads", "expected 1 to"]);
    fails(1, &format!("{TINY} --threads 1000000"), &["--threads", "found 1000000"]);
    fails(1, &format!("{TINY} --dropout 1.5"), &["classifier", "[0, 1)", "1.5"]);
    fails(1, &format!("{TINY} --smoothing 2"), &["label smoothing", "found 2"]);
    // Counts at the end of their range are not a failure, and no panic either.
    let last = u64::MAX;
    crate::succeeds(&format!("{TINY} --max-steps 1 --epochs {last} --sched step --decay-epochs {last}"));
}

#[test]
fn images_too_small_name_the_layer() {
    fails(1, "plan --model vgg16 --image-size 16", &["vgg16", "features.30", "larger images"]);
    fails(1, "plan --model alexnet --image-size 30", &["alexnet", "features.5", "larger images"]);
}

#[test]
fn budgets_that_cannot_be_kept() {
    let plan = "plan --model vgg16 -b 64";
    let refused = fails(1, &format!("{plan} --budget 1GiB"), &["needs at least", "the budget is 1.00 GiB"]);
    let floor = refused.number("floor_bytes");
    assert!(floor > f64::from(1 << 30));
    assert!(!refused.text("step").is_empty());
    let largest = refused.document["largest"].as_array().unwrap();
    assert!(!largest.is_empty() && largest.iter().all(|b| b["name"].is_string() && b["bytes"].is_u64()));
    let at_floor = crate::succeeds(&format!("{plan} --budget {floor}"));
    assert!(at_floor.number("peak_bytes") <= floor);
    let below = fails(1, &format!("{plan} --budget {}", floor - 1.0), &["needs at least"]);
    assert_eq!(below.number("floor_bytes"), floor);
    fails(1, &format!("{plan} --policy all --host-budget 1GiB"), &["host memory", "the host budget is 1.00 GiB"]);
    // The floor is the same whatever budget was refused, and is met on the device.
    for policy in ["", "--policy all-m", "--policy conv"] {
        let train = format!("{TINY} --max-steps 1 {policy}");
        let floor = fails(1, &format!("{train} --budget 1"), &["needs at least"]).number("floor_bytes");
        let below = fails(1, &format!("{train} --budget {}", floor - 1.0), &["needs at least"]);
        assert_eq!(below.number("floor_bytes"), floor, "{train}");
        let met = crate::succeeds(&format!("{train} --budget {floor}"));
        assert!(met.number("measured_peak_bytes") <= met.number("planned_peak_bytes"));
        assert!(met.number("planned_peak_bytes") <= floor, "{train}");
    }
    fails(1, &format!("{TINY} --policy all --min-offload 0 --host-budget 0"), &["host budget"]);
}

/// Case B49. On a machine with a GPU there is nothing to refuse.
#[test]
fn a_gpu_that_is_not_there() {
    if vdnn_cuda::driver::device_count().is_ok_and(|count| count > 0) {
        return;
    }
    fails(1, "train --device cuda --max-steps 1", &["cuda:0", "--device cpu"]);
    fails(1, "train --device cuda:7 --max-steps 1", &["cuda:7"]);
}

/// An IDX file: magic number, sizes, bytes.
fn idx(folder: &Path, name: &str, magic: u32, sizes: &[u32], bytes: &[u8]) {
    let mut file: Vec<u8> = magic.to_be_bytes().to_vec();
    sizes.iter().for_each(|size| file.extend(size.to_be_bytes()));
    file.extend(bytes);
    fs::write(folder.join(name), file).unwrap();
}

const IMAGES: u32 = 0x0803;
const LABELS: u32 = 0x0801;

fn write_data(folder: &Path) {
    for (part, n) in [("train", 32), ("t10k", 16)] {
        let labels: Vec<u8> = (0..n).map(|i| (i % 10) as u8).collect();
        let pixels: Vec<u8> = (0..n * 784).map(|i| (i % 251) as u8).collect();
        idx(folder, &format!("{part}-images-idx3-ubyte"), IMAGES, &[n, 28, 28], &pixels);
        idx(folder, &format!("{part}-labels-idx1-ubyte"), LABELS, &[n], &labels);
    }
}

#[test]
fn data_that_is_missing_or_wrong() {
    let train = "train --device cpu --data mnist --data-dir data -b 16 --max-steps 1";
    fails(1, train, &["no data set folder at data", "train-images-idx3-ubyte"]);
    let check = |break_it: &dyn Fn(&Path), words: &[&str]| {
        let folder = TempDir::new().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        write_data(&data);
        break_it(&data);
        check_failure(vdnn_in(folder.path(), train), 1, train, words);
    };
    check(&|data| fs::remove_file(data.join("t10k-labels-idx1-ubyte")).unwrap(), &["t10k-labels-idx1-ubyte"]);
    check(
        &|data| {
            let path = data.join("train-images-idx3-ubyte");
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        },
        &["train-images-idx3-ubyte is cut short", "expected 25104 bytes", "found 12552"],
    );
    check(
        &|data| {
            let (images, labels) = (data.join("train-images-idx3-ubyte"), data.join("train-labels-idx1-ubyte"));
            fs::rename(&images, data.join("x")).unwrap();
            fs::rename(&labels, &images).unwrap();
            fs::rename(data.join("x"), &labels).unwrap();
        },
        &["is mislabelled", "swapped"],
    );
    check(&|data| idx(data, "train-labels-idx1-ubyte", LABELS, &[31], &[0; 31]), &["do not belong together", "31"]);
    check(&|data| idx(data, "train-labels-idx1-ubyte", LABELS, &[32], &[11; 32]), &["label 11", "out of range"]);
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    write_data(&folder.path().join("data"));
    let called = vdnn_in(folder.path(), train);
    assert_eq!(called.status, 0, "{}", called.document);
}

#[test]
fn schedule_files_of_another_kind() {
    let folder = TempDir::new().unwrap();
    let run = |arguments: &str| vdnn_in(folder.path(), arguments);
    let plan = "plan --model vgg-small --policy none-m";
    assert_eq!(run(&format!("{plan} --out s.json")).status, 0);
    let text = fs::read_to_string(folder.path().join("s.json")).unwrap();
    assert!(text.contains("\"format\":1"));
    fs::write(folder.path().join("new.json"), text.replacen("\"format\":1", "\"format\":99", 1)).unwrap();
    let refused = |arguments: &str, words: &[&str]| check_failure(run(arguments), 1, arguments, words);
    refused(&format!("{plan} --algos-from new.json"), &["new.json", "99", "1"]);
    fs::write(folder.path().join("half.json"), &text[..text.len() / 2]).unwrap();
    refused(&format!("{plan} --algos-from half.json"), &["half.json"]);
    fs::write(folder.path().join("new.txt"), "schedule format 99\n").unwrap();
    refused(&format!("{plan} --algos-from new.txt"), &["new.txt", "99"]);
    refused(&format!("{plan} --algos-from nowhere.json"), &["nowhere.json"]);
    refused(&format!("{plan} --out s.bin"), &["s.bin", ".txt or .json"]);
    refused(&format!("{plan} --out nowhere/s.json"), &["nowhere/s.json"]);
    // The algorithms of a machine description are not the CPU device's.
    refused(
        &format!("{TINY} --model vgg-small --algos-from s.json"),
        &["features.0", "has no algorithm", "Use a schedule"],
    );
    assert_eq!(run("plan --model resnet-small --out other.json").status, 0);
    refused(&format!("{plan} --algos-from other.json"), &["a schedule of resnet-small", "the network is vgg-small"]);
}
