#pragma once
// What encoding needs while it works, reused from piece to piece and from text to text: a pool hands them
// out, for they are large. Private to the tokenizer.
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/serving/tokenizer/piece_cache.h"

namespace lockstep::serving::tokenizing {

// A token of a piece, linked to its neighbours. A symbol that was joined to the one before it has id -1.
struct Symbol {
  int32_t id = 0;
  int32_t previous = -1;
  int32_t next = -1;
};

// The best way to read a text up to some byte.
struct BestPath {
  double score = 0;
  int64_t begin = -1;  // of its last token; -1: no way ends here
  int32_t id = -1;
};

struct Workspace {
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;
  std::vector<BestPath> paths;
  std::string spelling;
  PieceCache cache;
};

class WorkspacePool {
 public:
  class Lease {
   public:
    Lease(WorkspacePool& pool, std::unique_ptr<Workspace> workspace);
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease();
    Workspace& operator*() { return *workspace_; }

   private:
    WorkspacePool& pool_;
    std::unique_ptr<Workspace> workspace_;
  };
  Lease take();

 private:
  static constexpr size_t kMaxPooled = 64;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_;  // guarded by mutex_
};

}  // namespace lockstep::serving::tokenizing
