// The model of this folder in C++: one struct for its inputs, one for its outputs.
#pragma once

#include <onnxruntime_cxx_api.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

template <typename T>
struct Tensor {
  std::vector<T> data;  // row by row
  std::vector<int64_t> dims;
};

struct Inputs {
@INPUT_FIELDS@
};

struct Outputs {
@OUTPUT_FIELDS@
};

class Model {
 public:
  explicit Model(const std::string& path, int threads = @THREADS@) : session_(open(path, threads)) {}

  Outputs run(const Inputs& given) {
    std::vector<Ort::Value> inputs;
@FEEDS@
    const char* input_names[] = {@INPUT_NAMES@};
    const char* output_names[] = {@OUTPUT_NAMES@};
    auto found = session_.Run(Ort::RunOptions{nullptr}, input_names, inputs.data(), inputs.size(), output_names, @COUNT@);
    Outputs outputs;
@RESULTS@
    return outputs;
  }

 private:
  static Ort::Session open(const std::string& path, int threads) {
    static Ort::Env environment(ORT_LOGGING_LEVEL_WARNING, "model");
    Ort::SessionOptions options;
    options.SetIntraOpNumThreads(threads);
#ifdef _WIN32
    return Ort::Session(environment, std::wstring(path.begin(), path.end()).c_str(), options);
#else
    return Ort::Session(environment, path.c_str(), options);
#endif
  }

  // `Stored` has the bytes of `Element`: std::vector<bool> has no array inside, and float16 is no type of C++17.
  template <typename Element, typename Stored>
  static Ort::Value value(const Tensor<Stored>& tensor) {
    static_assert(sizeof(Element) == sizeof(Stored), "one element each");
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    auto* data = reinterpret_cast<Element*>(const_cast<Stored*>(tensor.data.data()));
    return Ort::Value::CreateTensor<Element>(memory, data, tensor.data.size(), tensor.dims.data(), tensor.dims.size());
  }

  template <typename Element, typename Stored>
  static Tensor<Stored> tensor(Ort::Value& found) {
    const auto info = found.GetTensorTypeAndShapeInfo();
    const auto* data = reinterpret_cast<const Stored*>(found.GetTensorMutableData<Element>());
    return {{data, data + info.GetElementCount()}, info.GetShape()};
  }

  Ort::Session session_;
};
