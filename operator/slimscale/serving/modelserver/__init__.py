"""onnxruntime behind the Open Inference Protocol, on localhost: one model a width."""
