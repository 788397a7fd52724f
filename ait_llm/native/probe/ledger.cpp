#include "ledger.h"

#include <algorithm>
#include <ctime>

#include "json.h"
#include "log.h"

namespace ait {
namespace {

constexpr size_t MAX_WAITING_BYTES = 4194304;
constexpr size_t BATCH_BYTES = 16384;
constexpr long long SEAL_BYTES = 4096; // of the reserve, for the last lines

JsonLine LostLines(uint64_t count)
{
    return JsonLine().Text("kind", "lost").Number("lines", static_cast<int64_t>(count));
}

} // namespace

JsonLine &JsonLine::Raw(const char *key, const std::string &json)
{
    text_ += text_.empty() ? "" : ",";
    text_ += JsonQuote(key) + ":" + json;
    return *this;
}

JsonLine &JsonLine::Text(const char *key, const std::string &value)
{
    return Raw(key, JsonQuote(value));
}

JsonLine &JsonLine::Number(const char *key, int64_t value)
{
    return Raw(key, std::to_string(value));
}

std::string UtcNow()
{
    const time_t now = time(nullptr);
    tm parts = {};
    char text[32] = "";
    gmtime_r(&now, &parts);
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

Ledger::Ledger(Directories &directories, int pid) : directories_(directories), pid_(pid) {}

std::string Ledger::Path() const
{
    return "ledger/" + (device_.empty() ? "-1" : device_) + "_" + std::to_string(pid_) + ".jsonl";
}

std::string Ledger::HeaderLine() const
{
    JsonLine line;
    line.Text("kind", "header").Number("schema", 1).Text("device", device_.empty() ? "-1" : device_);
    std::string text = line.Braces();
    text.pop_back();
    return text + "," + facts_ + "}\n";
}

int Ledger::Reopen()
{
    const int error = file_.Open(directories_, Path(), true);
    if (error == 0) {
        file_.Lock();
        file_.Reserve();
    }
    return error;
}

void Ledger::Start(const std::string &device, const JsonLine &facts)
{
    device_ = device;
    facts_ = facts.Braces();
    facts_ = facts_.substr(1, facts_.size() - 2);
    started_ = true;
    Write(HeaderLine());
    onlyHeader_ = true;
}

void Ledger::SetDevice(const std::string &device)
{
    if (!started_ || !device_.empty() || device.empty()) {
        return;
    }
    const bool renamed = device != "-1";
    device_ = device;
    if (!renamed || !file_.IsOpen()) {
        waiting_ = onlyHeader_ && !waiting_.empty() ? HeaderLine() : waiting_;
        return;
    }
    if (onlyHeader_ && waiting_.empty()) {
        static_cast<void>(file_.Rewrite(HeaderLine()));
    }
    static_cast<void>(file_.MoveTo(directories_, Path()));
}

void Ledger::Write(const std::string &line)
{
    if (waiting_.size() + line.size() > MAX_WAITING_BYTES) {
        ++lost_;
    } else {
        waiting_ += line;
    }
    if (waiting_.size() >= BATCH_BYTES) {
        Flush();
    }
}

void Ledger::NoteRemoval()
{
    if (!file_.Removed()) {
        return;
    }
    Log(LogLevel::ERROR, "the output directory " + directories_.Root() +
                             " was removed while capturing; what it held is lost");
    file_.Close();
    directories_.Forget();
    waiting_ = HeaderLine() + JsonLine().Text("kind", "removed").Text("time", UtcNow()).Braces() +
               "\n" + waiting_;
    headerOnDisk_ = false;
}

void Ledger::Flush()
{
    NoteRemoval();
    if (waiting_.empty() || (!file_.IsOpen() && Reopen() != 0)) {
        return;
    }
    if (file_.Append(waiting_, onlyHeader_ ? 0 : SEAL_BYTES) == 0) {
        waiting_.clear();
        headerOnDisk_ = true;
        if (lost_ > 0) {
            const uint64_t lost = lost_;
            lost_ = 0;
            Write(LostLines(lost).Braces() + "\n");
        }
    }
}

void Ledger::Seal(const JsonLine &line)
{
    Flush();
    const std::string seal = line.Braces() + "\n";
    if (!file_.IsOpen() && Reopen() != 0) {
        return;
    }
    if (file_.Append(waiting_ + seal, 1) == 0) {
        waiting_.clear();
        return;
    }
    const auto lines = std::count(waiting_.begin(), waiting_.end(), '\n');
    // The header is no line that somebody misses.
    const uint64_t lost = lost_ + static_cast<uint64_t>(lines) - (headerOnDisk_ ? 0 : 1);
    const std::string header = headerOnDisk_ ? "" : HeaderLine();
    if (file_.Append(header + LostLines(lost).Braces() + "\n" + seal) == 0) {
        waiting_.clear();
        lost_ = 0;
    }
}

bool Ledger::HasRoom()
{
    return !started_ || !file_.IsOpen() || file_.Reserve();
}

void Ledger::Add(const JsonLine &line)
{
    onlyHeader_ = false;
    Write(line.Braces() + "\n");
}

} // namespace ait
