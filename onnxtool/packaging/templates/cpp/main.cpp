// Smoke test: run MODEL FOLDER [OUT]. Reads FOLDER/inputN.bin and .dims, holds the outputs against FOLDER/outputN.bin;
// with OUT it writes the outputs there instead.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>

#include "model.hpp"

namespace {

std::vector<char> bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename T>
Tensor<T> read(const std::string& path) {
  Tensor<T> tensor;
  std::ifstream file(path + ".dims");
  for (int64_t dim; file >> dim;) tensor.dims.push_back(dim);
  const auto raw = bytes(path + ".bin");
  tensor.data.resize(raw.size() / sizeof(T));
  if (!raw.empty()) std::memcpy(tensor.data.data(), raw.data(), raw.size());
  return tensor;
}

template <typename T>
void write(const std::string& path, const Tensor<T>& tensor) {
  std::ofstream dims(path + ".dims");
  for (auto dim : tensor.dims) dims << dim << ' ';
  std::ofstream file(path + ".bin", std::ios::binary);
  file.write(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size() * sizeof(T));
}

bool close(double expected, double got, double scale) {
  if (std::isnan(expected)) return std::isnan(got);
  return expected == got || (std::isfinite(expected) && std::abs(expected - got) <= 1e-3 * std::abs(expected) + 1e-5 * scale);
}

template <typename T>
bool equal(const Tensor<T>& expected, const Tensor<T>& got) {
  if (expected.dims != got.dims || expected.data.size() != got.data.size()) return false;
  double scale = 0;
  for (double value : expected.data) scale = std::isfinite(value) ? std::max(scale, std::abs(value)) : scale;
  for (size_t i = 0; i < got.data.size(); ++i) {
    const bool same = std::is_floating_point_v<T> ? close(expected.data[i], got.data[i], scale) : expected.data[i] == got.data[i];
    if (!same) return false;
  }
  return true;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) {
    std::cerr << "usage: run MODEL FOLDER [OUT]\n";
    return 2;
  }
  try {
    const std::string folder = std::string(arguments[2]) + "/";
    Model model(arguments[1]);
    Inputs inputs;
@READ@
    const Outputs outputs = model.run(inputs);
    if (count > 3) {
      const std::string place = std::string(arguments[3]) + "/";
@WRITE@
      return 0;
    }
    bool same = true;
@EQUAL@
    std::cout << (same ? "equal" : "differs") << std::endl;
    return same ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 3;
  }
}
