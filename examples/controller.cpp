// Control an arm from an exported policy alone: onnxruntime's C++ API, nothing of this project.
//
//   g++ -O2 -std=c++17 -I$ORT/include examples/controller.cpp -L$ORT/lib -lonnxruntime -o controller
//   ./controller policy.onnx 0.4 0.1 0.4
//
// Reads a state a line, joint positions, velocities and the gripper's driver coordinate, and answers
// each with a line of joint velocities and the gripper's opening. The goal is in the base frame.
#include <onnxruntime_cxx_api.h>

#include <cmath>
#include <initializer_list>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

// Read exactly these numbers, all finite; anything else ends the program, as no command follows.
bool read_numbers(std::istream& words, std::initializer_list<std::vector<float>*> parts) {
  for (auto* part : parts)
    for (float& value : *part)
      if (!(words >> value) || !std::isfinite(value)) return false;
  return (words >> std::ws).eof();
}

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: controller policy.onnx GOAL...\n";
    return 2;
  }
  Ort::Env env(ORT_LOGGING_LEVEL_WARNING, "controller");
  Ort::SessionOptions options;
  options.SetIntraOpNumThreads(1);
  Ort::Session session(env, argv[1], options);
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);

  // One tensor an input, over numbers that are written before every step.
  std::map<std::string, std::vector<float>> numbers;
  std::vector<Ort::Value> inputs;
  std::vector<const char*> input_names;
  Ort::AllocatorWithDefaultOptions allocator;
  for (size_t i = 0; i < session.GetInputCount(); ++i) {
    const auto type = session.GetInputTypeInfo(i);
    const auto shape = type.GetTensorTypeAndShapeInfo().GetShape();
    const auto name = session.GetInputNameAllocated(i, allocator);
    auto& [key, values] = *numbers.try_emplace(name.get(), shape.at(0)).first;
    input_names.push_back(key.c_str());
    inputs.push_back(Ort::Value::CreateTensor<float>(memory, values.data(), values.size(),
                                                     shape.data(), shape.size()));
  }
  auto& goal = numbers["goal"];
  numbers["qd"].resize(numbers["q"].size());  // states have all three, and a policy may need fewer
  numbers["gripper"].resize(1);
  if (numbers.size() != 4 || goal.size() != static_cast<size_t>(argc - 2)) {
    std::cerr << "this program knows q, qd, gripper and a goal of this size; the policy needs more\n";
    return 2;
  }
  std::string typed;
  for (int i = 2; i < argc; ++i) typed += std::string(argv[i]) + ' ';
  std::istringstream words(typed);
  if (!read_numbers(words, {&goal})) {
    std::cerr << "the goal must be finite numbers, got: " << typed << '\n';
    return 2;
  }

  const char* output_names[] = {"command", "opening"};
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream state(line);
    if (!read_numbers(state, {&numbers["q"], &numbers["qd"], &numbers["gripper"]})) {
      std::cerr << "a state must be q, qd and gripper, finite numbers, got: " << line << '\n';
      return 1;
    }
    const auto outputs = session.Run(Ort::RunOptions{nullptr}, input_names.data(), inputs.data(),
                                     inputs.size(), output_names, 2);
    const float* command = outputs[0].GetTensorData<float>();
    for (size_t i = 0; i < numbers["q"].size(); ++i) std::cout << command[i] << ' ';
    std::cout << outputs[1].GetTensorData<float>()[0] << std::endl;
  }
}
