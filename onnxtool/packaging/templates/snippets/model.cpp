@HEAD@
#include <onnxruntime_cxx_api.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

std::vector<Ort::Value> run(Ort::Session& session, @PARAMETERS@) {
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  std::vector<Ort::Value> inputs;
  @FEEDS@
  const char* names[] = {@NAMES@};
  const char* outputs[] = {@OUTPUTS@};
  return session.Run(Ort::RunOptions{nullptr}, names, inputs.data(), inputs.size(), outputs, std::size(outputs));
}
